"""Frozen settings: defaults, then a TOML file, then `HILUM_<SECTION>__<NAME>`.

Every error is reported at once.

`docs/reference/settings.md` is generated from the descriptions here. Units are in the names.
"""

from hilum.settings.destinations import (
    DESTINATION_KINDS,
    AnyDestination,
    CStoreDestination,
    Destination,
    DicomDestination,
    FhirDestination,
    FolderDestination,
    Hl7Destination,
    ObjectDestination,
    SenderDestination,
    StowDestination,
    WebhookDestination,
    message_settings,
)
from hilum.settings.fields import (
    FINGERPRINT,
    LOOPBACK,
    AeTitle,
    CertificateName,
    GrpcAddress,
    Host,
    Network,
    OptionalAeTitle,
    OtherObjects,
    Port,
    PriorityName,
    SopClass,
    TransferSyntax,
    certificate_name,
    is_ae_title,
    is_loopback,
    printable_token,
)
from hilum.settings.guard import Guard, RefusedFlag
from hilum.settings.loading import find_file, load, restore, secrets_in
from hilum.settings.models import Analyse, Models, Triton
from hilum.settings.outbound import CommitmentPeer, Report
from hilum.settings.peers.dimse import DimsePeer
from hilum.settings.peers.hl7 import Hl7MessageSettings
from hilum.settings.peers.http import HttpPeer
from hilum.settings.peers.tls import TlsClient
from hilum.settings.peers.workitems import CodedConcept, WorkitemManager
from hilum.settings.peers.worklist import Worklist
from hilum.settings.receive import Receive
from hilum.settings.reference import describe
from hilum.settings.root import Settings
from hilum.settings.service import (
    Api,
    Audit,
    LedgerSection,
    Log,
    Pipeline,
    Site,
    Stow,
    Syslog,
    Tracing,
)
from hilum.settings.sources import (
    SOURCE_KINDS,
    AnySource,
    CampaignLimits,
    CGetSource,
    CMoveSource,
    DicomwebSource,
    DimseSource,
    SourceSection,
)
from hilum.settings.studies import Handling, Retention, Route, Sender, Studies, Watch

__all__ = [
    "DESTINATION_KINDS",
    "FINGERPRINT",
    "LOOPBACK",
    "SOURCE_KINDS",
    "AeTitle",
    "Analyse",
    "AnyDestination",
    "AnySource",
    "Api",
    "Audit",
    "CGetSource",
    "CMoveSource",
    "CStoreDestination",
    "CampaignLimits",
    "CertificateName",
    "CodedConcept",
    "CommitmentPeer",
    "Destination",
    "DicomDestination",
    "DicomwebSource",
    "DimsePeer",
    "DimseSource",
    "FhirDestination",
    "FolderDestination",
    "GrpcAddress",
    "Guard",
    "Handling",
    "Hl7Destination",
    "Hl7MessageSettings",
    "Host",
    "HttpPeer",
    "LedgerSection",
    "Log",
    "Models",
    "Network",
    "ObjectDestination",
    "OptionalAeTitle",
    "OtherObjects",
    "Pipeline",
    "Port",
    "PriorityName",
    "Receive",
    "RefusedFlag",
    "Report",
    "Retention",
    "Route",
    "Sender",
    "SenderDestination",
    "Settings",
    "Site",
    "SopClass",
    "SourceSection",
    "Stow",
    "StowDestination",
    "Studies",
    "Syslog",
    "TlsClient",
    "Tracing",
    "TransferSyntax",
    "Triton",
    "Watch",
    "WebhookDestination",
    "WorkitemManager",
    "Worklist",
    "certificate_name",
    "describe",
    "find_file",
    "is_ae_title",
    "is_loopback",
    "load",
    "message_settings",
    "printable_token",
    "restore",
    "secrets_in",
]
