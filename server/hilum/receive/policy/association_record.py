"""The events of one association, and the row that they become.

Each refusal stands in it with the change that the sender should make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hilum.domain import AssociationRecord
from hilum.observability import telemetry, tracing
from hilum.receive.policy.advice import NotAccepted, counted
from hilum.receive.policy.association_policy import AssociationRejection
from hilum.receive.policy.sender_policy import STORAGE_SOP_CLASSES
from hilum.receive.sinks import NOTE_NOT_PERMITTED, StoreOutcome
from hilum.receive.statuses import StatusResponse

_log = telemetry.logger("receive")
_DETAIL_LENGTH = 400
OTHERS_DISCARDED = "other_objects_discarded"
TOO_SLOW = "too_slow"


@dataclass(frozen=True, slots=True)
class UnreportedRefusal:
    """The row's fields for a connection that ended before a request for an association."""

    outcome: str
    reason: str | None
    advice: str


NOT_DICOM = UnreportedRefusal(
    "not_dicom",
    None,
    "It sent something that is not an A-ASSOCIATE-RQ, or one of more than 256 KiB. "
    "Check that the sender speaks DICOM to this port, without TLS.",
)
TOO_MANY_CONNECTIONS = UnreportedRefusal(
    "dropped",
    "too_many_connections",
    "It asked for nothing while newer connections came, most of them from its own address: see what"
    " connects from there.",
)


@dataclass(frozen=True, slots=True)
class HttpProblem:
    """The problem of a STOW-RS request that was refused as a whole, or not finished.

    It has the response's status and the change that the sender should make.
    """

    status: int
    detail: str


@dataclass(slots=True)
class AssociationRecorder:
    """The state of an association's row, filled while the association lasts.

    AE Titles are chosen by the peer and stay out of logs and metrics.
    """

    peer_address: str
    started_at: float
    calling_ae_title: str = ""
    called_ae_title: str = ""
    is_requested: bool = False
    is_established: bool = False
    unheard: UnreportedRefusal | None = None
    rejection: AssociationRejection | None = None
    accepted: frozenset[str] = frozenset()
    not_accepted: tuple[NotAccepted, ...] = ()
    advice_on_contexts: str | None = None
    stored: int = 0
    own_documents: int = 0
    # objects that are no images, by SOP Class UID
    discarded: Counter[str] = field(default_factory=Counter)
    has_note_not_permitted: bool = False
    refused: int = 0
    last_refusal: StatusResponse | None = None
    commitment_refusal: StatusResponse | None = None
    report_refusal: StatusResponse | None = None
    abort_reason: str | None = None
    request_problem: str | None = None  # where an A-ASSOCIATE-RQ cannot be read
    slowness_advice: str | None = None
    shown: tracing.AssociationSpan | None = None  # in the traces of its studies
    http_problem: HttpProblem | None = None
    requests: str = "C-STORE"  # the kind of objects counted as refused

    @property
    def is_too_slow(self) -> bool:
        """Whether it was aborted as too slow."""
        return self.abort_reason == TOO_SLOW

    def outcome(self, *, is_released: bool) -> str | None:
        """Return how it ended.

        None: a connection without a request, as the health check of a load balancer makes them.
        """
        if not self.is_requested:
            return None if self.unheard is None else self.unheard.outcome
        if self.rejection is not None:
            return "rejected"
        return "released" if is_released else "aborted"

    def show(self, outcome: str) -> None:
        """Write its span, in the traces of its studies; once, at the end."""
        if self.shown is not None:
            titles = {
                "calling_ae_title": self.calling_ae_title,
                "called_ae_title": self.called_ae_title,
            }
            self.shown.end(
                {**titles, "stored": self.stored, "refused": self.refused, "outcome": outcome}
            )

    def say_discarded(self) -> None:
        """Log the objects that were acknowledged and not kept, in one line; once, at the end."""
        if self.discarded:
            _log.info(
                OTHERS_DISCARDED, count=self.discarded.total(), classes=counted(self.discarded)
            )

    def record(self, outcome: str, ended_at: float) -> AssociationRecord:
        """Return the row."""
        return AssociationRecord(
            started_at=self.started_at,
            ended_at=ended_at,
            peer_address=self.peer_address[:64],
            calling_ae_title=self.calling_ae_title,
            called_ae_title=self.called_ae_title,
            outcome=outcome,
            reason=self._reason(outcome),
            stored=self.stored,
            refused=self.refused,
            own_documents=self.own_documents,
            advice=self._advice(outcome),
        )

    def _reason(self, outcome: str) -> str | None:
        if (ended := self.unheard or self.rejection) is not None:
            return ended.reason
        if self.http_problem is not None:
            return f"http_{self.http_problem.status}"
        refusal = self.last_refusal or self.commitment_refusal or self.report_refusal
        if refusal is not None:
            return refusal.label
        if self._has_lost(outcome) and not self.accepted.intersection(STORAGE_SOP_CLASSES):
            is_unknown = any(not item.is_known for item in self.not_accepted)
            return "sop_class_not_accepted" if is_unknown else "transfer_syntax_not_accepted"
        if outcome == "aborted":
            return self.abort_reason or "connection_lost"
        note = StoreOutcome.NOTE_NOT_PERMITTED.value if self.has_note_not_permitted else None
        return note or (OTHERS_DISCARDED if self.discarded else None)

    def _has_lost(self, outcome: str) -> bool:
        """Return whether an object may have been lost by a context that was not accepted.

        It is not known which objects a sender would have sent.
        """
        is_empty = not (self.stored or self.own_documents or self.discarded)
        return bool(self.not_accepted) and (is_empty or outcome == "aborted")

    def _advice(self, outcome: str) -> str | None:
        if (ended := self.unheard or self.rejection) is not None:
            return ended.advice
        parts = [self.advice_on_contexts if self._has_lost(outcome) else None]
        if self.request_problem is not None:
            parts.append(
                f"Its A-ASSOCIATE-RQ cannot be read: {self.request_problem}. Correct the sender."
            )
        if (problem := self.http_problem) is not None:
            parts.append(f"STOW-RS answered {problem.status}: {_plain(problem.detail)}")
        parts += self._advice_on_objects()
        if self.is_too_slow:
            parts.append(self.slowness_advice)
        return " ".join(part for part in parts if part) or None

    def _advice_on_objects(self) -> Iterator[str]:
        """Yield a sentence for each kind of object that was refused or not kept."""
        if (last := self.last_refusal) is not None:
            yield (
                f"{self.refused} {self.requests} refused, the last with {last.label}:"
                f" {last.comment}."
            )
        if (asked := self.commitment_refusal) is not None:
            yield f"Storage commitment refused, the last with {asked.label}: {asked.comment}."
        if (told := self.report_refusal) is not None:
            yield (
                f"A report of storage commitment was not taken, the last with {told.label}:"
                f" {told.comment}."
            )
        if self.discarded:
            yield (
                f"Acknowledged and not kept, being no images: {counted(self.discarded)}"
                " (receive.other_objects)."
            )
        if self.has_note_not_permitted:
            yield f"{NOTE_NOT_PERMITTED}."


def _plain(detail: str) -> str:
    """Return the text as a database takes it: a parser's message may quote received bytes."""
    return "".join(character if character.isprintable() else "?" for character in detail)[
        :_DETAIL_LENGTH
    ]
