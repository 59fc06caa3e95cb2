"""Answers of `/studies`: images, readings, results, documents, deliveries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from hilum.api.fields import Moment, ResponseModel
from hilum.domain import (
    SR,
    Channel,
    Decision,
    DeliveryCommitment,
    DeliveryState,
    Outcome,
    ReadingState,
    RemovalReason,
    ReportState,
    ResultState,
    StudyState,
)
from hilum.store.audit.log import AuditFilter, AuditLog
from hilum.timestamps import is_moment, iso
from hilum.verbs import Verb
from hilum.verbs import VerbOutcome as DeedOutcome

PriorityName = Literal["urgent", "live", "reanalysis"]


def _said(timings: dict[str, float]) -> dict[str, float | str]:
    return {name: iso(value) if is_moment(name) else value for name, value in timings.items()}


Timings = Annotated[dict[str, float], PlainSerializer(_said, return_type=dict[str, float | str])]


class ResultSummary(ResponseModel):
    """The current result of one release."""

    id: int
    release: str = Field(
        description="name@version of the release.", examples=["densenet121_untrained@1"]
    )
    revision: int
    state: ResultState
    outcome: Outcome
    reason: str | None = Field(description="Why there is no number, from the documented list.")
    created_at: Moment


class WorklistPriority(ResponseModel):
    """The priority of a study's order, as the modality worklist names it."""

    words: list[str] = Field(
        description="Its values, urgent ones first; several where entries of the order differ.",
        examples=[["STAT"]],
    )
    source: str = Field(examples=["RIS@ris.example.org:104"])
    answered_at: Moment
    is_urgent: bool
    has_raised: bool = Field(
        description="Work of the study that waited became urgent; false: nothing waited any more."
    )


class StudySummary(ResponseModel):
    """A study in a list."""

    id: int = Field(
        description=(
            "The study's number here. An erased study keeps it, under another `study_instance_uid`"
            " (`state` erased)."
        )
    )
    study_instance_uid: str = Field(examples=["1.2.826.0.1.3680043.8.498.1"])
    state: StudyState
    reason: str | None = Field(description="Why the study failed.")
    revision: int = Field(description="Grows with each image that arrives.")
    priority: PriorityName
    calling_ae_title: str = Field(description="Sender of the first image.", examples=["CR_ROOM1"])
    called_ae_title: str
    rule: str | None = Field(
        description="The rule that decided about it at its first image; null: there were none."
    )
    worklist: WorklistPriority | None = Field(
        description="The priority of its order by a worklist or a work item; null: none named one."
    )
    received_first: Moment
    received_last: Moment
    quiet_until: Moment = Field(
        description="End of the quiet period; the study closes then, once its images are read."
    )
    open_readings: int = Field(description="Readings not yet ended.")
    images: int
    results: list[ResultSummary] = Field(description="Current results, one a release.")
    report_state: ReportState = Field(
        description="Where its reports are; only `delivered` says that they arrived."
    )
    deliveries: dict[DeliveryState, int] = Field(
        description="Deliveries of the current results, counted by state."
    )


class StudyPage(ResponseModel):
    """One page of studies."""

    studies: list[StudySummary]
    next_cursor: str | None = Field(
        description=(
            "Give it as `cursor` for the next page; null: this is the last. Never null with"
            " `order=changed`."
        )
    )


class ReadingAnswer(ResponseModel):
    """One release's output for one image, or the reason why there is none."""

    release: str
    is_shadow: bool = Field(
        description=(
            "It reads along (docs/models/rollouts.md): it is not reported, and the study does"
            " not wait for it."
        )
    )
    state: ReadingState
    reason: str | None
    detail: str | None
    attempts: int
    view: str | None = Field(examples=["PA"])
    logits: list[float] | None = Field(
        description="In the order of the release's labels, see /api/v1/releases."
    )
    member_logits: list[list[float]] | None = Field(
        None, description="Of an ensemble: the logits of each member."
    )
    precision: str | None
    preprocessing_version: str | None
    timings: Timings | None = Field(
        description=(
            "Seconds of each step, when it began and ended, and how many images were in its batch."
        )
    )
    finished_at: Moment | None


class ImageAnswer(ResponseModel):
    """One SOP Instance of the study."""

    sop_instance_uid: str
    sop_class_uid: str
    series_instance_uid: str
    transfer_syntax_uid: str
    size_bytes: int
    received_at: Moment
    header_revision: int = Field(
        description="Grows when the same pixels arrive with another header."
    )
    calling_ae_title: str
    is_removed: bool = Field(
        description="Rejected by a note or a person: it takes no part in results."
    )
    removal_reason: RemovalReason | None = Field(description="Why it was rejected.")
    pixels_removed_at: Moment | None = Field(
        description="When the pixels left the archive (retention); rows and documents stay."
    )
    readings: list[ReadingAnswer]


class CodeAnswer(ResponseModel):
    """A coded concept (PS3.16)."""

    value: str
    scheme: str
    meaning: str


class FindingAnswer(ResponseModel):
    """A decision on one label.

    `score` is the activation (0 to 1); `probability` is given only where the release is calibrated.
    """

    key: str = Field(examples=["effusion"])
    text: str = Field(examples=["Pleural effusion"])
    code: CodeAnswer
    logit: float
    score: float
    probability: float | None
    operating_point: float | None
    decision: Decision
    source_sop_instance_uids: list[str]
    member_scores: dict[str, float] = Field(
        default_factory=dict, description="Of an ensemble: the score of each member."
    )


class SourceImageAnswer(ResponseModel):
    """One image of the study as the release saw it."""

    sop_instance_uid: str
    sop_class_uid: str
    series_instance_uid: str
    view: str | None
    is_used: bool
    reason: str | None
    scores: dict[str, float]
    logits: dict[str, float]
    member_scores: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="Of an ensemble: by member, then by finding."
    )
    flags: list[str] = Field(
        default_factory=list,
        description="Doubts about the image: docs/reference/states.md.",
        examples=[["few_levels"]],
    )


class DeliveryAnswer(ResponseModel):
    """One document on its way to one destination."""

    id: int
    destination: str = Field(examples=["pacs"])
    state: DeliveryState
    reason: str | None
    detail: str | None = Field(
        description=(
            "The problem of the last failed try; before the first try, that of another delivery"
            " to the same destination."
        )
    )
    attempts: int
    at: Moment | None = Field(
        description="When it ended: accepted, cancelled, withheld or given up."
    )
    next_try_at: Moment | None
    delivered_at: Moment | None = Field(
        description="When it was first accepted; it stays when the document is sent again."
    )
    requeued_at: Moment | None = Field(
        description="When a person last made it due again: requeued, released or sent again."
    )
    commitment: DeliveryCommitment | None = Field(
        description=(
            "Whether its destination has committed to keep it (storage commitment); null: it is not"
            " asked, or the document has not been accepted yet."
        )
    )
    commitment_at: Moment | None = Field(description="Since when that is so.")


class DocumentAnswer(ResponseModel):
    """One encoded report; the bytes are at /api/v1/documents/{id}."""

    id: int
    result_id: int
    kind: str = Field(examples=[SR.key])
    media_type: str = Field(examples=[SR.media_type])
    sop_class_uid: str | None
    sop_instance_uid: str | None
    series_instance_uid: str | None
    predecessor_uid: str | None = Field(description="The document that this one replaces.")
    created_at: Moment
    size_bytes: int
    deliveries: list[DeliveryAnswer]


class DocumentList(ResponseModel):
    """Documents of one study, oldest first."""

    documents: list[DocumentAnswer]


class ResultAnswer(ResponseModel):
    """All findings of the study by one release, from exactly these source images."""

    id: int
    release: str
    revision: int
    state: ResultState
    outcome: Outcome
    reason: str | None
    failure: str | None = Field(description="Why its documents could not be built.")
    detail: str | None
    is_current: bool
    supersedes_id: int | None = Field(description="`id` of the result that this one replaced.")
    source_digest: str
    created_at: Moment
    is_trained: bool = Field(description="False: untrained weights; the numbers mean nothing.")
    is_calibrated: bool
    preprocessing_version: str | None
    findings: list[FindingAnswer]
    source_images: list[SourceImageAnswer]
    timings: Timings = Field(
        description="Seconds that each step took at most for an image, and the times of the study."
    )
    documents: list[DocumentAnswer]


class TimingAnswer(ResponseModel):
    """When each boundary was passed for the current results; null where it was not (yet)."""

    received_first: Moment
    received_last: Moment
    quiet_until: Moment
    analysed: Moment | None
    result_stored: Moment | None
    documents_stored: Moment | None
    first_delivered: Moment | None
    last_image_to_delivered_seconds: float | None
    quiet_end_to_delivered_seconds: float | None


class HistoryAnswer(ResponseModel):
    """A person's or program's action on the study.

    `GET /api/v1/audit` names the actor, and also lists the readers.
    """

    at: Moment
    verb: Verb
    channel: Channel
    outcome: DeedOutcome
    count: int = Field(description="How many things, as deliveries that were sent again.")
    detail: str | None


class StudyAnswer(ResponseModel):
    """Everything about one study.

    Patient identification is only in its documents: the ledger has no column for it.
    """

    disclaimer: str
    id: int = Field(
        description=(
            "The study's number here. An erased study keeps it, under another `study_instance_uid`"
            " (`state` erased)."
        )
    )
    study_instance_uid: str
    state: StudyState
    reason: str | None
    detail: str | None
    revision: int
    priority: PriorityName
    calling_ae_title: str
    called_ae_title: str
    rule: str | None = Field(
        description="The rule that decided about it at its first image; null: there were none."
    )
    worklist: WorklistPriority | None = Field(
        description="The priority of its order by a worklist or a work item; null: none named one."
    )
    received_first: Moment
    received_last: Moment
    quiet_until: Moment
    closed_at: Moment | None
    attempts: int
    open_readings: int
    report_state: ReportState = Field(
        description="Where its reports are; only `delivered` says that they arrived."
    )
    images: list[ImageAnswer]
    results: list[ResultAnswer] = Field(description="Newest first, superseded ones too.")
    shadow_results: list[ResultAnswer] = Field(
        description="Results of shadow releases; never current, never sent."
    )
    timing: TimingAnswer
    history: list[HistoryAnswer] = Field(
        description="Manual actions on it, newest first: sent again, requeued, completed …"
    )


_DEEDS = 100


def history_of(audit: AuditLog | None, study_instance_uid: str) -> list[dict[str, Any]]:
    """The newest changes by hand; without an audit none are known."""
    chosen = AuditFilter(study_instance_uid=study_instance_uid, has_looks=False)
    return [] if audit is None else audit.list(chosen, limit=_DEEDS)[0]
