"""Frozen settings: defaults, then a TOML file, then `HILUM_<SECTION>__<NAME>`.

Every error is reported at once.

`docs/reference/settings.md` is generated from the descriptions here. Units are in the names.
"""

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
from hilum.settings.outbound import CommitmentPeer, Destination, Report
from hilum.settings.receive import Receive
from hilum.settings.reference import describe
from hilum.settings.root import Settings
from hilum.settings.service import Api, Audit, Ledger, Log, Pipeline, Site, Stow, Syslog, Tracing
from hilum.settings.studies import Handling, Retention, Route, Sender, Studies, Watch

__all__ = [
    "FINGERPRINT",
    "LOOPBACK",
    "AeTitle",
    "Analyse",
    "Api",
    "Audit",
    "CertificateName",
    "CommitmentPeer",
    "Destination",
    "GrpcAddress",
    "Guard",
    "Handling",
    "Host",
    "Ledger",
    "Log",
    "Models",
    "Network",
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
    "Settings",
    "Site",
    "SopClass",
    "Stow",
    "Studies",
    "Syslog",
    "Tracing",
    "TransferSyntax",
    "Triton",
    "Watch",
    "certificate_name",
    "describe",
    "find_file",
    "is_ae_title",
    "is_loopback",
    "load",
    "printable_token",
    "restore",
    "secrets_in",
]
