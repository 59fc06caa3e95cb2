"""The words of Hilum as types: the values that pass between the rooms.

Standard library only, and the reasons of `hilum_preprocessing`, so that every process may import
it, and so that a room can be tested with plain lists.
Times are seconds since the epoch, UTC, as float. UIDs are strings as in PS3.5 chapter 9.
"""

from hilum.domain.access import AccessToken, Actor, Channel, Scope
from hilum.domain.associations import AssociationRecord
from hilum.domain.commitment import CommitmentRequest, CommitmentVerdict
from hilum.domain.deliveries import Delivery
from hilum.domain.dicom import (
    IMAGE_SOP_CLASSES,
    SR_CLASS_PREFERENCE,
    SR_KINDS,
    TRANSFER_SYNTAXES,
    Code,
    SopReference,
    SrClass,
    mint_uid,
)
from hilum.domain.documents import (
    DOCUMENT_KINDS,
    HEAT_MAP,
    JSON,
    SR,
    Document,
    DocumentKind,
    Made,
    NewDocument,
    file_stem,
    identifier_names,
    kind_of,
    orderable_kinds,
)
from hilum.domain.images import (
    ActivationMaps,
    Identifiers,
    Identity,
    Instance,
    Reading,
    Rejection,
    flags_of,
)
from hilum.domain.jobs import (
    Advance,
    CommitmentJob,
    ComparisonJob,
    DeliveryJob,
    Job,
    Lease,
    ReadingJob,
    ReportJob,
    StudyJob,
)
from hilum.domain.priority import Priority
from hilum.domain.reasons import (
    REASONS,
    AnyReason,
    ImageReason,
    RemovalReason,
    ServerReason,
    is_out_of_scope,
)
from hilum.domain.releases import Label, Release, alias_of
from hilum.domain.results import Decision, Finding, Outcome, Result, SourceImage, source_digest
from hilum.domain.rollouts import Rollout, RolloutMode
from hilum.domain.states import (
    CommitmentState,
    ComparisonState,
    ConflictKind,
    ConflictState,
    DeliveryState,
    ReadingState,
    ReportState,
    ResultState,
    RolloutState,
    StudyState,
    WorkState,
)
from hilum.domain.studies import Study

__all__ = [
    "DOCUMENT_KINDS",
    "HEAT_MAP",
    "IMAGE_SOP_CLASSES",
    "JSON",
    "REASONS",
    "SR",
    "SR_CLASS_PREFERENCE",
    "SR_KINDS",
    "TRANSFER_SYNTAXES",
    "AccessToken",
    "ActivationMaps",
    "Actor",
    "Advance",
    "AnyReason",
    "AssociationRecord",
    "Channel",
    "Code",
    "CommitmentJob",
    "CommitmentRequest",
    "CommitmentState",
    "CommitmentVerdict",
    "ComparisonJob",
    "ComparisonState",
    "ConflictKind",
    "ConflictState",
    "Decision",
    "Delivery",
    "DeliveryJob",
    "DeliveryState",
    "Document",
    "DocumentKind",
    "Finding",
    "Identifiers",
    "Identity",
    "ImageReason",
    "Instance",
    "Job",
    "Label",
    "Lease",
    "Made",
    "NewDocument",
    "Outcome",
    "Priority",
    "Reading",
    "ReadingJob",
    "ReadingState",
    "Rejection",
    "Release",
    "RemovalReason",
    "ReportJob",
    "ReportState",
    "Result",
    "ResultState",
    "Rollout",
    "RolloutMode",
    "RolloutState",
    "Scope",
    "ServerReason",
    "SopReference",
    "SourceImage",
    "SrClass",
    "Study",
    "StudyJob",
    "StudyState",
    "WorkState",
    "alias_of",
    "file_stem",
    "flags_of",
    "identifier_names",
    "is_out_of_scope",
    "kind_of",
    "mint_uid",
    "orderable_kinds",
    "source_digest",
]
