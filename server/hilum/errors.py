"""Errors as verbs for the pipeline's loop.

Any other exception is a bug and shows its traceback.
"""

from __future__ import annotations

from hilum.domain import AnyReason


class NotAnalysed(Exception):
    """Never again: the item ends without a number, for a reason from the closed list.

    `detail` holds the observation ("Rows is 0"), without patient data.
    """

    def __init__(self, reason: AnyReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[NotAnalysed], tuple[AnyReason, str]]:
        """Comes back whole from a process pool.

        An exception that cannot be unpickled breaks the pool.
        """
        return type(self), (self.reason, self.detail)


class Retry(Exception):
    """Later. `after_seconds` None: by back-off.

    `is_outage`: the cause is certainly outside this item (Triton is loading, the PACS is down). So
    the try does not count: an outage of a night must not turn a queue into dead letters.
    """

    def __init__(
        self, detail: str, after_seconds: float | None = None, *, is_outage: bool = False
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.after_seconds = after_seconds
        self.is_outage = is_outage


class ReceiverGone(Retry):
    """An outage that a person ends: the receiver wants no more, so its destination is paused."""

    def __init__(self, detail: str, after_seconds: float | None = None) -> None:
        super().__init__(detail, after_seconds, is_outage=True)


class Refused(Exception):
    """Not by itself: the other side refused, and will refuse until a person changes something."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str]]:
        """As for NotAnalysed."""
        return type(self), (self.reason, self.detail)


class WorkerDied(Exception):
    """The process that held the item ended or hung; it counts as a lapse of the lease.

    `is_named`: it was at this item and at no other, which need not be tried apart from all others.
    """

    def __init__(self, detail: str = "", *, is_named: bool = False) -> None:
        super().__init__(detail)
        self.is_named = is_named


class ConfigurationError(Exception):
    """A person has to change something. `problems` holds each one, with its remedy."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class NotYet(ConfigurationError):
    """As its base; but it may end without new settings, so a caller may wait and try again.

    Examples: another host migrates the ledger, or a database starts.
    """
