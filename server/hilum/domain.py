"""The words of Hilum as types: what travels between the rooms.

Standard library only, so that every process may import it, and so that a room can be tested with
plain lists.
Times are seconds since the epoch, UTC, as float. UIDs are strings as in PS3.5 chapter 9.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Final


class Lane(IntEnum):
    """Priority from the door to the engine; a smaller number goes first."""

    URGENT = 0
    LIVE = 1
    REANALYSIS = 2


class Reason(StrEnum):
    """Why an image or a study ended without a number.

    The list is closed; `docs/states.md` is generated from it.
    """

    WRONG_MODALITY = "wrong_modality"
    NOT_FOR_PRESENTATION = "not_for_presentation"
    NOT_CHEST = "not_chest"
    LATERAL_NOT_SUPPORTED = "lateral_not_supported"
    CHILD = "child"
    NOT_MONOCHROME = "not_monochrome"
    MULTI_FRAME = "multi_frame"
    NO_PIXEL_DATA = "no_pixel_data"
    TRUNCATED_PIXEL_DATA = "truncated_pixel_data"
    EXCESS_PIXEL_DATA = "excess_pixel_data"
    UNDECODABLE = "undecodable"
    CODESTREAM_MISMATCH = "codestream_mismatch"
    DEPTH_CONTRADICTED = "depth_contradicted"
    TRANSFER_SYNTAX_NOT_SUPPORTED = "transfer_syntax_not_supported"
    CORRUPT_HEADER = "corrupt_header"
    TOO_LARGE = "too_large"
    CONSTANT_IMAGE = "constant_image"
    UNSUPPORTED_PIXEL_FORMAT = "unsupported_pixel_format"
    IMPLAUSIBLE_PIXELS = "implausible_pixels"
    RELEASE_NOT_AVAILABLE = "release_not_available"
    INSTANCE_MISSING = "instance_missing"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    WORKER_CRASHED = "worker_crashed"
    NO_ANALYSED_IMAGE = "no_analysed_image"
    REJECTED = "rejected"
    PATIENT_CONFLICT = "patient_conflict"
    NOT_WAITED_FOR = "not_waited_for"
    ERASED = "erased"

    @property
    def meaning(self) -> str:
        """One sentence for a person, without patient data."""
        return _REASON_MEANING[self]


_REASON_MEANING: Mapping[Reason, str] = {
    Reason.WRONG_MODALITY: (
        "Neither the SOP Class nor, in a Secondary Capture, the Modality is that of a radiograph"
        " (CR, DX), or Modality names another kind."
    ),
    Reason.NOT_FOR_PRESENTATION: (
        "Presentation Intent Type is FOR PROCESSING: raw detector signal, which no recipe was made"
        " for."
    ),
    Reason.NOT_CHEST: (
        "Body Part Examined names another body part than the chest; or it names none, and the"
        " anatomic region or a description does."
    ),
    Reason.LATERAL_NOT_SUPPORTED: "A lateral view, and the release reads frontal views only.",
    Reason.CHILD: "The patient is younger than the release's manifest allows (`input.population`).",
    Reason.NOT_MONOCHROME: "Colour or palette pixels; a radiograph is MONOCHROME1 or MONOCHROME2.",
    Reason.MULTI_FRAME: "More than one frame.",
    Reason.NO_PIXEL_DATA: "The object holds no Pixel Data.",
    Reason.TRUNCATED_PIXEL_DATA: (
        "Pixel Data is shorter than the header says, or its codestream lacks its end, tiles,"
        " packets or scans."
    ),
    Reason.EXCESS_PIXEL_DATA: (
        "Pixel Data holds more than the header says: deeper pixels, or more frames, samples, rows"
        " or columns."
    ),
    Reason.UNDECODABLE: "The decoder refused the codestream.",
    Reason.CODESTREAM_MISMATCH: "The codestream's own size or depth contradicts the header.",
    Reason.DEPTH_CONTRADICTED: (
        "Pixels exceed Bits Stored, or are no such numbers: read by the header they would be"
        " another picture."
    ),
    Reason.TRANSFER_SYNTAX_NOT_SUPPORTED: (
        "Hilum stores this Transfer Syntax, but does not decode it."
    ),
    Reason.CORRUPT_HEADER: (
        "An attribute that is needed to read the pixels is missing or unreadable, or the header is"
        " too complex."
    ),
    Reason.TOO_LARGE: "More pixels than the limit, in the image or on its way to the input.",
    Reason.CONSTANT_IMAGE: "All pixels have one value.",
    Reason.UNSUPPORTED_PIXEL_FORMAT: (
        "Bits Allocated, Bits Stored or Pixel Representation outside what is supported."
    ),
    Reason.IMPLAUSIBLE_PIXELS: (
        "The image has a flag that `guard.refuses` lists, or all flags of a row of"
        " `guard.refuses_together`."
    ),
    Reason.RELEASE_NOT_AVAILABLE: "The release is no longer configured.",
    Reason.INSTANCE_MISSING: "The stored object is gone from the archive.",
    Reason.ATTEMPTS_EXHAUSTED: (
        "The work was tried as often as the settings allow and failed each time."
    ),
    Reason.WORKER_CRASHED: "Three workers died or hung while they held this item.",
    Reason.NO_ANALYSED_IMAGE: "No image of the study could be analysed by this release.",
    Reason.REJECTED: "Rejected after it was made, by a rejection note (IHE IOCM) or by a person.",
    Reason.PATIENT_CONFLICT: (
        "The images name several patients, so there is no finding: correct the wrong Patient ID and"
        " send that image again, or reject it."
    ),
    Reason.NOT_WAITED_FOR: "A person completed the study before this image was read.",
    Reason.ERASED: "The data of the patient, or of this study, was erased.",
}


class Channel(StrEnum):
    """The way in by which a verb was asked for."""

    CLI = "cli"
    REST = "rest"
    PAGE = "page"
    DICOM = "dicom"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks for a verb: the name that was authenticated, the way in, and the address it came from (empty: this host)."""

    name: str
    channel: Channel
    address: str = ""


class Scope(StrEnum):
    """The verbs that a token opens, in rising order: each scope includes those before it."""

    READ = "read"
    OPERATE = "operate"
    ERASE = "erase"

    def includes(self, needed: Scope) -> bool:
        """Whether a token of this scope may do what needs that one."""
        rising = list(Scope)
        return rising.index(self) >= rising.index(needed)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A named token.

    The ledger keeps the digest of its secret alone. Times in seconds since the epoch; None: never.
    """

    name: str
    scope: Scope
    digest: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class WorkState(StrEnum):
    """The two states that every stage's table shares; all other states are terminal."""

    DUE = "due"
    LEASED = "leased"


class ReadingState(StrEnum):
    """One image, one release.

    ERASED: nothing of the patient is left, and nothing can be done again.
    """

    DUE = "due"
    LEASED = "leased"
    ANALYSED = "analysed"
    NOT_ANALYSED = "not_analysed"
    FAILED = "failed"
    ERASED = "erased"


class StudyState(StrEnum):
    """A study is due at the end of its quiet period, and closed until a further image arrives."""

    DUE = "due"
    LEASED = "leased"
    CLOSED = "closed"
    FAILED = "failed"
    ERASED = "erased"


class ResultState(StrEnum):
    """A result waits for its documents; a newer result of the same study and release supersedes it.

    SHADOW: it gets none.
    """

    DUE = "due"
    LEASED = "leased"
    REPORTED = "reported"
    SHADOW = "shadow"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    ERASED = "erased"


class ComparisonState(StrEnum):
    """A study that a shadow reads along, waiting until both results are there."""

    DUE = "due"
    LEASED = "leased"
    COMPARED = "compared"
    FAILED = "failed"
    ERASED = "erased"


class RolloutState(StrEnum):
    """LOADING: a candidate is loaded and proved, and nothing else changes.

    RUNNING: it reads along, or reads a share of new studies.

    SWITCHED: it reads all new studies, and the release before is kept loaded. DONE: one release
    reads, alone. CLOSED: the settings name another one than when it began.
    """

    LOADING = "loading"
    REFUSED = "refused"
    RUNNING = "running"
    SWITCHED = "switched"
    DONE = "done"
    CLOSED = "closed"


class RolloutMode(StrEnum):
    """What a proved candidate does.

    SHADOW: reads all, reports nothing; CANARY: a fraction of new studies; SWITCH: all of them.
    """

    SHADOW = "shadow"
    CANARY = "canary"
    SWITCH = "switch"


class DeliveryState(StrEnum):
    """One document, one destination.

    CANCELLED: superseded, sent in another SOP Class, or given up with its destination.

    DEAD: needs a person. WITHHELD: the settings keep it from this destination; `requeue` releases
    it when they do not any more.
    """

    DUE = "due"
    LEASED = "leased"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    DEAD = "dead"
    WITHHELD = "withheld"


class ReportState(StrEnum):
    """Where the reports of a study are, of all its current results together.

    OPEN: on their way, or to be made.

    FAILED: something needs a person. WITHHELD: the settings keep a report from a destination.
    DELIVERED: each destination has what it takes. NOT_DELIVERED: no destination takes any, so they
    are in REST only; or the study was erased.
    """

    OPEN = "open"
    FAILED = "failed"
    WITHHELD = "withheld"
    DELIVERED = "delivered"
    NOT_DELIVERED = "not_delivered"


class CommitmentState(StrEnum):
    """A request for storage commitment, until its report is answered.

    DEAD: the report reached nobody, and needs a person.
    """

    DUE = "due"
    LEASED = "leased"
    REPORTED = "reported"
    DEAD = "dead"


class Decision(StrEnum):
    """What a finding says. Untrained weights never yield PRESENT or ABSENT (promise 8)."""

    PRESENT = "present"
    ABSENT = "absent"
    UNDECIDED = "undecided"


class RemovalReason(StrEnum):
    """Why an image takes no part in results any more.

    The title of the rejection note (IHE IOCM), or a person's word.
    """

    QUALITY = "rejected_for_quality_reasons"
    PATIENT_SAFETY = "rejected_for_patient_safety_reasons"
    WORKLIST_ENTRY = "incorrect_modality_worklist_entry"
    RETENTION_EXPIRED = "data_retention_policy_expired"
    BY_HAND = "rejected_by_hand"


class ConflictState(StrEnum):
    """What a person decided about other pixels under a known SOP Instance UID. HELD.

    Nothing yet.
    """

    HELD = "held"
    KEPT = "kept"
    REPLACED = "replaced"
    DISCARDED = "discarded"


class ConflictKind(StrEnum):
    """How an object differs from the image that is in use under its SOP Instance UID.

    HEADER: the same pixels with another header, from a sender that may not correct the image.
    """

    PIXELS = "pixels"
    HEADER = "header"


class Outcome(StrEnum):
    """How a study ended for one release."""

    ANALYSED = "analysed"
    PARTIAL = "partial"
    NOT_ANALYSED = "not_analysed"


@dataclass(frozen=True, slots=True)
class SrClass:
    """A SOP Class that a structured report may have.

    Its name in settings, the kind of its document, its UID (PS3.4 B.5).
    """

    name: str
    kind: str
    sop_class_uid: str


# The ladder: a receiver that refuses a class is offered the next one. The first is what every
# report is built as.
SR_LADDER = (
    SrClass("comprehensive_3d", "sr", "1.2.840.10008.5.1.4.1.1.88.34"),
    SrClass("comprehensive", "sr_comprehensive", "1.2.840.10008.5.1.4.1.1.88.33"),
    SrClass("enhanced", "sr_enhanced", "1.2.840.10008.5.1.4.1.1.88.22"),
    SrClass("basic_text", "sr_basic_text", "1.2.840.10008.5.1.4.1.1.88.11"),
)
SR_KINDS = tuple(item.kind for item in SR_LADDER)

# What a chest radiograph may come as, by the keywords of PS3.6 table A-1, which settings use.
IMAGE_SOP_CLASSES: Mapping[str, str] = {
    "ComputedRadiographyImageStorage": "1.2.840.10008.5.1.4.1.1.1",
    "DigitalXRayImageStorageForPresentation": "1.2.840.10008.5.1.4.1.1.1.1",
    "DigitalXRayImageStorageForProcessing": "1.2.840.10008.5.1.4.1.1.1.1.1",
    "SecondaryCaptureImageStorage": "1.2.840.10008.5.1.4.1.1.7",
}
# In order of preference: what is decoded cheapest first. The tail is stored too, and its images end
# with an honest reason.
TRANSFER_SYNTAXES: Mapping[str, str] = {
    "ExplicitVRLittleEndian": "1.2.840.10008.1.2.1",
    "ImplicitVRLittleEndian": "1.2.840.10008.1.2",
    "JPEGBaseline8Bit": "1.2.840.10008.1.2.4.50",
    "JPEGLosslessSV1": "1.2.840.10008.1.2.4.70",
    "JPEGLossless": "1.2.840.10008.1.2.4.57",
    "JPEGLSLossless": "1.2.840.10008.1.2.4.80",
    "JPEG2000Lossless": "1.2.840.10008.1.2.4.90",
    "HTJ2KLossless": "1.2.840.10008.1.2.4.201",
    "HTJ2KLosslessRPCL": "1.2.840.10008.1.2.4.202",
    "RLELossless": "1.2.840.10008.1.2.5",
    "JPEGExtended12Bit": "1.2.840.10008.1.2.4.51",
    "JPEGLSNearLossless": "1.2.840.10008.1.2.4.81",
    "JPEG2000": "1.2.840.10008.1.2.4.91",
    "HTJ2K": "1.2.840.10008.1.2.4.203",
    "DeflatedExplicitVRLittleEndian": "1.2.840.10008.1.2.1.99",
    "ExplicitVRBigEndian": "1.2.840.10008.1.2.2",
}


@dataclass(frozen=True, slots=True)
class Code:
    """A coded concept (PS3.16): value, scheme designator, meaning."""

    value: str
    scheme: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Label:
    """One output of a release.

    `operating_point` is on the scale of the score; None: no decision is made.

    `rescaled_at`: the activation that is called 0.5 as a score; None: the score is the activation.
    """

    key: str
    text: str
    code: Code
    code_status: str
    operating_point: float | None
    is_masked: bool = False
    rescaled_at: float | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A model as it may be used: a manifest's name@version.

    Read-only facts, parsed by the models room.

    `input_spec` is the mapping that `hilum_preprocessing.InputSpec.from_mapping` takes. `activation` is sigmoid, softmax or
    none. `aggregation` over views is max, mean or first_frontal. `calibration` None means: scores
    are no probabilities.
    `build_key` digests all that the built tree depends on: a tree with another key is stale. `operating_points` says where they
    come from: `measured_on` and `criterion`. `members` names the networks of an ensemble, in the
    order of their numbers, and `rule` says how they become one (mean_score, mean_logit); empty: one
    network. `digest` is that of all that the manifest says.
    """

    name: str
    version: str
    architecture: str
    triton_name: str
    input_spec: Mapping[str, Any]
    labels: tuple[Label, ...]
    activation: str
    aggregation: str
    precision: str
    engine: str
    is_trained: bool
    is_frontal_only: bool
    calibration: Mapping[str, Any] | None
    manufacturer: str
    intended_use: str
    licence: str
    source: str
    weights_sha256: str
    max_batch: int = 16
    has_cam: bool = False
    build_key: str = ""
    task: str = "classification"
    citation: str = ""
    operating_points: Mapping[str, str] | None = None
    members: tuple[str, ...] = ()
    rule: str = ""
    digest: str = ""

    @property
    def id(self) -> str:
        """`name@version`, the identity used everywhere."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Instance:
    """A stored SOP Instance.

    `header` is the data set up to Pixel Data, in the byte order and VR encoding of `transfer_syntax_uid` (deflated data sets:
    explicit little endian). `path` is relative to the archive. `digest` covers the data set,
    `pixel_digest` Pixel Data alone.
    `removal_reason`: it was rejected and takes no part in results.
    `pixels_removed_at`: since when there is no file any more; the row goes on speaking for the image (promise 4).
    """

    sop_instance_uid: str
    sop_class_uid: str
    study_instance_uid: str
    series_instance_uid: str
    transfer_syntax_uid: str
    path: str
    size_bytes: int
    digest: str
    pixel_digest: str
    received_at: float
    calling_ae_title: str
    called_ae_title: str
    header: bytes = b""
    header_revision: int = 1
    pixels_removed_at: float | None = None
    id: int = 0
    peer_address: str = ""
    removal_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose image it is, and of which order, as its header says.

    Empty: it does not say, or cannot be read.
    """

    patient_id: str = ""
    issuer: str = ""
    accession_number: str = ""


@dataclass(frozen=True, slots=True)
class Identifiers:
    """By what a hospital knows a study, as a header says it; empty: it does not say.

    `issuer`: Issuer of Patient ID (0010,0021). `study_date`: `2026-11-20`, or the text of the header
    where that is no date.
    """

    patient_id: str = ""
    issuer: str = ""
    accession_number: str = ""
    study_date: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One release's output for one image, or the reason why there is none.

    `detail` of an analysed image names its flags, and so does that of one that was refused for
    them (implausible_pixels).
    """

    id: int
    instance_id: int
    sop_instance_uid: str
    release: str
    state: ReadingState
    reason: str | None = None
    detail: str | None = None
    logits: tuple[float, ...] | None = None
    view: str | None = None
    preprocessing_version: str | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    member_logits: tuple[tuple[float, ...], ...] | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """See `flags_of`."""
        return flags_of(self.state, self.reason, self.detail)


_FLAG: Final = re.compile("[a-z][a-z0-9_]*")


def flags_of(state: str, reason: str | None, detail: str | None) -> tuple[str, ...]:
    """What is in doubt about the image of a reading: values of `hilum_preprocessing.Flag`.

    A row of another version may hold values that this one does not know.
    """
    has_flags = state == ReadingState.ANALYSED or reason == Reason.IMPLAUSIBLE_PIXELS
    named = tuple((detail or "").split(", ")) if has_flags else ()
    return named if all(_FLAG.fullmatch(name) for name in named) else ()


@dataclass(frozen=True, slots=True)
class ActivationMaps:
    """What an analysed reading left.

    (L,) logits and the bytes of (L, h, w) float16, each map's mean and the bias being its logit.
    """

    logits: tuple[float, ...]
    cam: bytes


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to advance one row: valid only while the row holds this token (fencing)."""

    row_id: int
    token: str
    attempts: int
    lapses: int
    waited_seconds: float = 0.0
    has_lapsed: bool = False
    """It was taken from a worker that died, perhaps of it: so it comes alone."""


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """A claimed reading, with the image it is about."""

    lease: Lease
    release: str
    lane: Lane
    instance: Instance


@dataclass(frozen=True, slots=True)
class Study:
    """A study's row."""

    study_instance_uid: str
    revision: int
    state: StudyState
    lane: Lane
    first_received_at: float
    last_received_at: float
    quiet_until: float
    calling_ae_title: str
    called_ae_title: str
    id: int = 0
    peer_address: str = ""


@dataclass(frozen=True, slots=True)
class StudyJob:
    """A claimed study with all its images (rejected ones too), all their readings and the current results (one a release).

    `spent_digests`: by release, source digests of results that are not current, of a study that has a current one.
    """

    lease: Lease
    study: Study
    instances: tuple[Instance, ...]
    readings: tuple[Reading, ...]
    current_results: tuple[Result, ...]
    spent_digests: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A decision on one label for the study.

    `score` is the activation, never called a probability unless calibrated.

    `member_scores`: of an ensemble, by member.
    """

    key: str
    text: str
    code: Code
    logit: float
    score: float
    probability: float | None
    operating_point: float | None
    decision: Decision
    source_sop_instance_uids: tuple[str, ...]
    member_scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One image of the study as a release saw it, numbers by finding.

    `member_scores` of an ensemble by member, then finding.

    `flags`: see `Reading.flags`.
    """

    sop_instance_uid: str
    sop_class_uid: str
    series_instance_uid: str
    view: str | None
    is_used: bool
    reason: str | None
    scores: Mapping[str, float] = field(default_factory=dict)
    logits: Mapping[str, float] = field(default_factory=dict)
    member_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """All findings of a study by one release, from exactly these source images.

    `identifiers` maps a document kind ("sr") and "<kind>_series" to the UID minted for it when the result was stored.
    `is_shadow`: for comparison only; it gets no document. `has_several_orders`: its images name different Accession Numbers.
    """

    study_instance_uid: str
    release: str
    source_digest: str
    revision: int
    outcome: Outcome
    reason: str | None
    findings: tuple[Finding, ...]
    source_images: tuple[SourceImage, ...]
    is_trained: bool
    is_calibrated: bool
    preprocessing_version: str | None
    identifiers: Mapping[str, str]
    timings: Mapping[str, float]
    created_at: float
    supersedes_id: int | None = None
    id: int = 0
    is_shadow: bool = False
    has_several_orders: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """The encoded bytes of one report. They are sent as they are, never built again (promise 5)."""

    kind: str
    media_type: str
    content: bytes
    sop_class_uid: str | None = None
    sop_instance_uid: str | None = None
    series_instance_uid: str | None = None
    predecessor_uid: str | None = None
    result_id: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class ReportJob:
    """A claimed result with the images that it names, and the document that a new one replaces (kind to document).

    `held`: for each destination the newest earlier structured report that it may hold, of whatever SOP Class. `pictured`: destinations
    that may hold an earlier heat map.
    """

    lease: Lease
    result: Result
    study: Study
    instances: tuple[Instance, ...]
    predecessors: Mapping[str, Document]
    held: Mapping[str, Document] = field(default_factory=dict)
    pictured: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ComparisonJob:
    """A claimed comparison.

    `shadow` is its study as the shadow alone saw it: its readings, and its result so far.

    `reported` None: the release that speaks for the study has not said anything yet.
    """

    lease: Lease
    release: str
    shadow_release: str
    shadow: StudyJob
    reported: Result | None


@dataclass(frozen=True, slots=True)
class Rollout:
    """How one alias (the name of a release of the settings, without version) goes from one release to another.

    `configured`: what the settings name. `serving`: what reads new studies. `previous`: kept loaded for the way back.
    `candidate`: what shall follow, by `mode`; `fraction` is a canary's share of studies.
    """

    alias: str
    configured: str
    serving: str
    state: RolloutState
    changed_at: float
    changed_by: str
    previous: str | None = None
    candidate: str | None = None
    mode: RolloutMode | None = None
    fraction: float | None = None
    problem: str | None = None

    @property
    def releases(self) -> tuple[str, ...]:
        """All that must be loaded for it: what serves first."""
        held = () if self.state is RolloutState.REFUSED else (self.candidate,)
        return tuple(
            dict.fromkeys(name for name in (self.serving, self.previous, *held) if name is not None)
        )


@dataclass(frozen=True, slots=True)
class Delivery:
    """A document on its way to one destination."""

    document_id: int
    destination: str
    state: DeliveryState = DeliveryState.DUE
    attempts: int = 0
    detail: str | None = None
    delivered_at: float | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryJob:
    """A claimed delivery, the document to send and what the metrics and the guard of promise 8 need to know.

    `identifiers` are the result's: the UIDs under which a document of another SOP Class would go. `is_current`: the result was not
    superseded while another try had the delivery. `delivered_at`: the destination has it since
    then, and it is sent again.
    """

    lease: Lease
    destination: str
    document: Document
    study_instance_uid: str
    release: str
    is_trained: bool
    last_received_at: float
    quiet_until: float
    identifiers: Mapping[str, str] = field(default_factory=dict)
    calling_ae_title: str = ""
    peer_address: str = ""
    is_current: bool = True
    delivered_at: float | None = None


@dataclass(frozen=True, slots=True)
class SopReference:
    """A SOP Instance as a sequence refers to it (PS3.3 Table 10-11)."""

    sop_class_uid: str
    sop_instance_uid: str


@dataclass(frozen=True, slots=True)
class CommitmentRequest:
    """Somebody asks whether these are kept, so that he may delete his own (PS3.4 annex J)."""

    transaction_uid: str
    references: tuple[SopReference, ...]
    calling_ae_title: str
    called_ae_title: str
    peer_address: str = ""


@dataclass(frozen=True, slots=True)
class CommitmentJob:
    """A claimed request.

    `is_duplicate`: another one with this Transaction UID was open when it came.
    """

    lease: Lease
    request: CommitmentRequest
    requested_at: float
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class CommitmentVerdict:
    """What is kept, and what is not, each with its Failure Reason (0008,1197)."""

    committed: tuple[SopReference, ...]
    failed: tuple[tuple[SopReference, int], ...]


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to store, where it shall go, and which destinations are withheld from it for what reason (never silently)."""

    document: Document
    destinations: tuple[str, ...]
    withheld: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Advance:
    """What a stage decided; the loop writes it in one transaction with the rows that follow from it.

    `values` are further columns of the claimed row. `results` follow a study, `documents` a result, or a delivery whose receiver
    wants the same report in another SOP Class.
    """

    state: StrEnum
    values: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[Result] = ()
    documents: Sequence[NewDocument] = ()


@dataclass(frozen=True, slots=True)
class AssociationRecord:
    """Who sent what, what was refused and what the sender should change; of STOW-RS requests, too.

    `count`: so many of a kind, on which nothing was stored, from the same sender within a minute; `ended_at` is the last one's.
    """

    started_at: float
    ended_at: float
    peer_address: str
    calling_ae_title: str
    called_ae_title: str
    outcome: str
    reason: str | None
    stored: int
    refused: int
    advice: str | None
    own_documents: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Rejection:
    """An image that shall take no part in results.

    `note_uid` None: a person said so, not a rejection note: `rejected_by`. `holds_for_all`: it holds
    for an image of any sender; else only for one that `calling_ae_title` has sent.
    """

    sop_instance_uid: str
    study_instance_uid: str
    reason: RemovalReason
    note_uid: str | None = None
    calling_ae_title: str = ""
    holds_for_all: bool = False
    rejected_by: str = ""


Job = ReadingJob | StudyJob | ComparisonJob | ReportJob | DeliveryJob | CommitmentJob


def alias_of(release: str) -> str:
    """`name@version` → name: under which routes speak of a release, whatever its version."""
    return release.partition("@")[0]


_UUID_VERSION_5: Final = 5 << 76 | 0b10 << 62  # RFC 4122 4.1.1 and 4.1.3, and all other bits
_UUID_RANDOM: Final = (1 << 128) - 1 & ~(0xF << 76 | 0b11 << 62)


def mint_uid(namespace: uuid.UUID, *parts: str) -> str:
    """A UID that is the same for the same parts.

    2.25 and the decimal form of a UUID (PS3.5 B.2), at most 44 characters.
    """
    name = "\x1f".join(parts)
    # That of uuid.uuid5, whose objects take longer than the digest; a study mints some thirty.
    digest = hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).digest()
    return f"2.25.{int.from_bytes(digest[:16]) & _UUID_RANDOM | _UUID_VERSION_5}"


def source_digest(sources: Sequence[tuple[str, int, str]], release: str) -> str:
    """Digest of what a result was made from.

    (SOP Instance UID, header revision, pixel digest) of every image, in any order.
    """
    text = "\n".join(f"{uid} {revision} {pixels}" for uid, revision, pixels in sorted(sources))
    return hashlib.sha256(f"{release}\n{text}".encode()).hexdigest()[:32]
