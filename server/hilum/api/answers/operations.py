"""Answers for operators: queues, associations, conflicts, releases, health."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, model_validator

from hilum.api.answers.studies import CodeAnswer, PriorityName
from hilum.api.fields import UID_PATTERN, Moment, ResponseModel
from hilum.domain import (
    CommitmentState,
    ConflictKind,
    ConflictState,
    HostFault,
    Outcome,
    RemovalReason,
)
from hilum.store.queue.requeue import reasons

Stage = Literal["analyse", "assemble", "compare", "report", "deliver", "commit"]
Role = Literal["receive", "analyse", "deliver"]


class AssociationAnswer(ResponseModel):
    """One association: its sender, the refused objects, and the change that the sender needs."""

    id: int
    started_at: Moment
    ended_at: Moment
    peer_address: str
    calling_ae_title: str
    called_ae_title: str
    outcome: str = Field(examples=["released"])
    reason: str | None
    count: int = Field(
        description=(
            "So many of a kind within a minute, on which nothing was stored: one row stands for all"
            " of them; ended_at is the last one's, refused and own_documents are sums."
        )
    )
    stored: int
    refused: int
    own_documents: int = Field(
        description="Documents of our own that came back: acknowledged and discarded."
    )
    advice: str | None = Field(examples=["Send to Called AE Title HILUM."])


class AssociationPage(ResponseModel):
    """One page of associations, newest first."""

    associations: list[AssociationAnswer]
    next_cursor: str | None


class ConflictAnswer(ResponseModel):
    """Another object under a SOP Instance UID that is in use.

    It is in quarantine; the first object stays authoritative.
    """

    id: int
    sop_instance_uid: str
    study_instance_uid: str | None = Field(
        description="Of the image that is in use; null: there is none any more."
    )
    path: str = Field(description="Relative to the archive.")
    size_bytes: int
    digest: str
    received_at: Moment
    calling_ae_title: str
    kind: ConflictKind = Field(
        description="header: the same pixels, from a sender that may not correct the image."
    )
    state: ConflictState = Field(description="held: not decided yet.")
    resolved_at: Moment | None = Field(description="When a person decided.")


class ConflictPage(ResponseModel):
    """One page of conflicts, newest first."""

    conflicts: list[ConflictAnswer]
    next_cursor: str | None


class NotCommitted(ResponseModel):
    """An object that is not kept, or not under the UID that it names."""

    sop_instance_uid: str
    failure_reason: str = Field(description="Failure Reason (0008,1197).", examples=["0x0112"])


class CommitmentAnswer(ResponseModel):
    """A request for storage commitment (PS3.4 J.3), and the state of its report."""

    id: int
    transaction_uid: str
    calling_ae_title: str
    called_ae_title: str
    peer_address: str
    requested_at: Moment
    state: CommitmentState = Field(
        description=(
            "dead: the report was not delivered; see reason and detail, then POST /api/v1/requeue."
        )
    )
    instances: int = Field(description="Objects that it names.")
    committed: int | None
    failed: int | None
    failures: list[NotCommitted] = Field(description="The first hundred of those that failed.")
    next_try_at: Moment | None
    reason: str | None
    detail: str | None
    finished_at: Moment | None


class CommitmentPage(ResponseModel):
    """One page of requests for storage commitment, newest first."""

    commitments: list[CommitmentAnswer]
    next_cursor: str | None


class RejectedAnswer(ResponseModel):
    """An image that takes no part in results any more; the first word about it stands."""

    sop_instance_uid: str
    study_instance_uid: str
    removal_reason: RemovalReason


class QueueAnswer(ResponseModel):
    """Open items of one stage and priority; `deliver` has one a destination."""

    stage: Stage
    priority: PriorityName
    destination: str | None
    due: int = Field(description="May be claimed now.")
    waiting: int = Field(description="Due later: the quiet period or the pause between tries runs.")
    leased: int = Field(description="In work.")
    oldest_age_seconds: float = Field(
        description=(
            "How long the oldest item has been due; of `deliver`, how long its document has been"
            " there."
        )
    )


class StuckAnswer(ResponseModel):
    """Items that need a person; then POST /api/v1/requeue."""

    stage: Stage
    reason: str | None
    destination: str | None
    items: int
    since: Moment | None


class FailingAnswer(ResponseModel):
    """A destination that does not take documents now; Hilum goes on trying."""

    destination: str
    items: int
    detail: str = Field(
        description="The problem of a try.", examples=["127.0.0.1:4242 refused the connection"]
    )


class OutcomeAnswer(ResponseModel):
    """Current results of one kind, stored in the last 24 hours."""

    release: str
    outcome: Outcome
    reason: str | None
    results: int


class ProcessAnswer(ResponseModel):
    """A heartbeat."""

    name: str
    role: str
    host: str
    pid: int
    started_at: Moment
    beat_at: Moment
    age_seconds: float
    is_ready: bool
    detail: str | None


class HostProblemAnswer(ResponseModel):
    """A fault of one host among the others."""

    fault: HostFault
    detail: str = Field(examples=["its clock is 12 s behind the ledger's"])
    advice: str


class HostAnswer(ResponseModel):
    """A server of the installation, as its last heartbeat describes it."""

    name: str
    host: str
    pid: int
    roles: str = Field(examples=["listener,dispatcher"])
    version: str
    revision: str = Field(description="Of the ledger, as this version needs it.")
    is_alive: bool
    started_at: Moment
    beat_at: Moment = Field(description="By the clock of that host.")
    age_seconds: float = Field(description="Since that heartbeat, by the ledger's clock.")
    clock_offset_seconds: float | None = Field(
        description="Its clock less the ledger's; null: SQLite, or not measured yet."
    )
    round_trip_seconds: float | None
    settings_digest: str = Field(
        description="Of the settings that must be the same on all hosts (docs/operate/hosts.md)."
    )
    settings: dict[str, str] = Field(description="The same by section.")
    archive: str | None = Field(
        description="Identity of the archive; none: it sees none; silent: no answer; null: unused."
    )
    processes: dict[str, int] = Field(description="Processes of this host that live, by role.")
    ready: dict[str, int] = Field(description="Those that can work.")
    problems: list[HostProblemAnswer]


class DestinationAnswer(ResponseModel):
    """A receiver of documents, and the dispatcher that serves it now."""

    name: str
    is_paused: bool
    owner: str | None
    owned_until: Moment | None


class QueuesAnswer(ResponseModel):
    """The state of all stages at this moment."""

    queues: list[QueueAnswer]
    stuck: list[StuckAnswer]
    failing: list[FailingAnswer]
    outcomes: list[OutcomeAnswer]
    destinations: list[DestinationAnswer]
    processes: list[ProcessAnswer]
    hosts: list[HostAnswer]


class LabelAnswer(ResponseModel):
    """One output of a release."""

    key: str
    text: str
    code: CodeAnswer
    code_status: str
    operating_point: float | None
    is_masked: bool
    rescaled_at: float | None = Field(
        description=(
            "The activation that is called 0.5 as a score; null: the score is the activation."
        )
    )


class ReleaseAnswer(ResponseModel):
    """A model as it is used here."""

    id: str = Field(examples=["densenet121_untrained@1"])
    name: str
    version: str
    is_active: bool = Field(description="It reads new studies (/api/v1/rollouts says more).")
    architecture: str
    is_trained: bool
    is_calibrated: bool
    is_frontal_only: bool
    labels: list[LabelAnswer]
    activation: str
    aggregation: str
    precision: str
    engine: str
    manufacturer: str
    intended_use: str
    licence: str
    source: str
    citation: str
    task: str
    operating_points: dict[str, str] | None = Field(
        description="Where they come from: `measured_on` and `criterion`; null: there are none."
    )
    weights_sha256: str
    input_spec: dict[str, Any]


class ReleaseList(ResponseModel):
    """All releases that have a manifest."""

    releases: list[ReleaseAnswer]


_TEXT = {"type": "string"}
_ORDER_RULES: dict[str, Any] = {
    "anyOf": [
        *(
            {"required": [name], "properties": {name: _TEXT}}
            for name in ("reason", "study_instance_uid", "destination")
        ),
        {"required": ["all"], "properties": {"all": {"const": True}}},
    ],
    "if": {"required": ["destination"], "properties": {"destination": _TEXT}},
    "then": {"properties": {"stage": {"const": "deliver"}}},
    "allOf": [
        {
            "anyOf": [
                {
                    "properties": {
                        "stage": {"const": stage},
                        "reason": {"enum": [*reasons(stage), None]},
                    }
                }
                for stage in get_args(Stage)
            ]
        },
    ],
    "examples": [{"stage": "deliver", "destination": "pacs"}],
}


class RequeueOrder(ResponseModel):
    """Which ended items become due again.

    Those that fit all of reason, study_instance_uid and destination; or `all` of the stage.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra=_ORDER_RULES)

    stage: Stage
    reason: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")] | None = Field(
        None, description="Items that ended for this reason."
    )
    study_instance_uid: Annotated[str, Field(pattern=UID_PATTERN, max_length=64)] | None = Field(
        None, description="Items of this study."
    )
    destination: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = Field(
        None, description="Deliveries to it (stage deliver)."
    )
    all: bool = Field(
        default=False,
        description=(
            "Every ended item of the stage; for analyse that includes images not analysed for good"
            " reason."
        ),
    )

    @model_validator(mode="after")
    def _means_something(self) -> RequeueOrder:
        if not (self.all or self.reason or self.study_instance_uid or self.destination):
            raise ValueError(
                'name at least one of reason, study_instance_uid and destination, or set "all":'
                " true"
            )
        if self.destination and self.stage != "deliver":
            raise ValueError('destination belongs to "stage": "deliver"')
        return self


class WithheldAnswer(ResponseModel):
    """Reports that the settings keep from a destination."""

    destination: str
    reason: str = Field(examples=["untrained_weights"])
    items: int
    since: Moment | None
    releasable: int = Field(description="Their cause is gone: POST /api/v1/requeue releases them.")
    advice: str = Field(description="The remedy for the others.")


class Requeued(ResponseModel):
    """How many items became due again."""

    requeued: int
    withheld: list[WithheldAnswer] = Field(
        [], description="Chosen items that stay withheld, and why; absent if there are none."
    )


class CheckAnswer(ResponseModel):
    """One thing that readiness rests on."""

    name: str = Field(examples=["disk"])
    ok: bool
    detail: str = Field(examples=["120.4 GB free, 2.1 GB reserved"])
    advice: str | None = Field(description="The remedy when it is not ok.")


class RoleAnswer(ResponseModel):
    """Readiness of one role."""

    role: Role
    is_ready: bool
    checks: list[CheckAnswer] = Field(
        description="The checks behind it; empty where no token was given."
    )


class ReadyAnswer(ResponseModel):
    """Readiness of the roles that were asked for; all must be ready for 200."""

    is_ready: bool
    roles: list[RoleAnswer]


class LiveAnswer(ResponseModel):
    """This process answers."""

    status: Literal["alive"]
