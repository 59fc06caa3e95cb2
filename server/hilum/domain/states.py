"""The states of the rows that the stages work on."""

from __future__ import annotations

from enum import StrEnum


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
    """The state of a study's reports, over all its current results.

    OPEN: on their way, or to be made.

    FAILED: something needs a person. WITHHELD: the settings keep a report from a destination.
    DELIVERED: each destination has its documents. NOT_DELIVERED: no destination takes any, so they
    are in REST only; or the study was erased.
    """

    OPEN = "open"
    FAILED = "failed"
    WITHHELD = "withheld"
    DELIVERED = "delivered"
    NOT_DELIVERED = "not_delivered"


class CommitmentState(StrEnum):
    """A request for storage commitment, until its report is answered.

    DEAD: the report did not arrive, and needs a person.
    """

    DUE = "due"
    LEASED = "leased"
    REPORTED = "reported"
    DEAD = "dead"


class DeliveryCommitment(StrEnum):
    """Whether a destination has committed to keep a document that it accepted.

    DUE: it is to be asked. ASKED: its answer is awaited. FAILED: it needs a person.
    """

    DUE = "due"
    ASKED = "asked"
    COMMITTED = "committed"
    FAILED = "failed"


class ConflictState(StrEnum):
    """A person's decision about other pixels under a known SOP Instance UID. HELD.

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
