"""One request on an association: its responses, its time limits, its cancel and its abort.

The `send_c_*` generators of pynetdicom are not used. They look neither at a limit for the whole
request nor at `stop`, and their reactor may take a response off the queue in a race.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pynetdicom.dimse_primitives import C_CANCEL, C_STORE

from hilum.retrieve.dimse.statuses import is_pending

_LOOK_SECONDS: Final = 0.1
_CANCEL_SECONDS: Final = 5.0
_ABORT_SECONDS: Final = 1.0
_NO_CONTEXT: Final = 0x0122


class RequestEnd(StrEnum):
    """How a request ended.

    ANSWERED: by its final response. ENOUGH: cancelled, because the answers suffice. TIMED_OUT: at
    its limit. STOPPED: by `stop`. SILENT: no message came in time. LOST: the association ended.
    """

    ANSWERED = "answered"
    ENOUGH = "enough"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    SILENT = "silent"
    LOST = "connection lost"


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """`seconds` for the whole request; `silence_seconds` between two messages, None: no limit.

    `cancel_seconds`: how long the final response may take after a C-CANCEL.
    """

    seconds: float
    silence_seconds: float | None = None
    cancel_seconds: float = _CANCEL_SECONDS
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class DimseResponse:
    """A response. `identifier`: encoded. Counts of sub-operations: None where it gives none."""

    status: int
    identifier: bytes
    completed: int | None = None
    failed: int | None = None
    warned: int | None = None


StoreHandler = Callable[[Any, int], int]
"""Takes a C-STORE request of a C-GET and its context ID; returns the status of the response."""


def abort(assoc: Any) -> None:  # noqa: ANN401 - pynetdicom ships no types
    """Abort an association; wait only briefly for a peer that has gone."""
    assoc.acse_timeout = _ABORT_SECONDS
    assoc.abort()


class PendingRequest:
    """A request that was sent. `end` and `was_cancelled` hold once the responses are over.

    A request that gets no final response ends the association.
    """

    def __init__(
        self,
        assoc: Any,  # noqa: ANN401 - pynetdicom ships no types
        context_id: int,
        message: Any,  # noqa: ANN401 - the same
        limits: RequestLimits,
        store: StoreHandler | None = None,
    ) -> None:
        self.end = RequestEnd.ANSWERED
        self.was_cancelled = False
        self._assoc = assoc
        self._context_id = context_id
        self._message_id = message.MessageID
        self._limits = limits
        self._store = store
        self._heard_at = time.monotonic()
        self._deadline = self._heard_at + limits.seconds
        assoc.dimse.send_msg(message, context_id)

    def cancel(self, end: RequestEnd = RequestEnd.ENOUGH) -> None:
        """Send a C-CANCEL; the association is aborted where the final response does not come."""
        if self.was_cancelled:
            return
        self.was_cancelled = True
        self.end = end
        grace = self._limits.cancel_seconds
        if self._limits.silence_seconds is not None:
            grace = min(grace, self._limits.silence_seconds)
        self._deadline = time.monotonic() + grace
        message = C_CANCEL()
        message.MessageIDBeingRespondedTo = self._message_id
        self._assoc.dimse.send_msg(message, self._context_id)

    def responses(self) -> Generator[DimseResponse, None, None]:
        """Yield the responses, the final one last; none follows where the request was ended.

        Close it: the association of a request that is not over is aborted.
        """
        is_over = False
        try:
            while (received := self._next()) is not None:
                context_id, message = received
                if isinstance(message, C_STORE) and self._store is not None:
                    self._serve(self._store, context_id, message)
                    continue
                response = _response_of(message)
                if response is None:
                    self.end = RequestEnd.LOST
                    return
                is_over = not is_pending(response.status)
                yield response
                if is_over:
                    return
        finally:
            if not is_over:
                abort(self._assoc)

    def _next(self) -> tuple[int, Any] | None:
        """Return the next message and its context ID; None: the request is over without one."""
        while self._goes_on():
            try:
                context_id, message = self._assoc.dimse.msg_queue.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if self._assoc.is_established:
                    continue
                if not self.was_cancelled:
                    self.end = RequestEnd.LOST
                return None
            if message is not None:
                self._heard_at = time.monotonic()
                return context_id, message
        return None

    def _goes_on(self) -> bool:
        """Whether to wait for a message; a request at its limit is cancelled first."""
        now = time.monotonic()
        if self.was_cancelled:
            return now < self._deadline
        silence = self._limits.silence_seconds
        if self._limits.stop.is_set():
            self.cancel(RequestEnd.STOPPED)
        elif now >= self._deadline:
            self.cancel(RequestEnd.TIMED_OUT)
        elif silence is not None and now - self._heard_at > silence:
            self.end = RequestEnd.SILENT
            return False
        return True

    def _serve(self, store: StoreHandler, context_id: int, message: Any) -> None:  # noqa: ANN401
        response = C_STORE()
        response.MessageIDBeingRespondedTo = message.MessageID
        response.AffectedSOPClassUID = message.AffectedSOPClassUID
        response.AffectedSOPInstanceUID = message.AffectedSOPInstanceUID
        response.Status = store(message, context_id) if message.is_valid_request else _NO_CONTEXT
        self._assoc.dimse.send_msg(response, context_id)


def _response_of(message: Any) -> DimseResponse | None:  # noqa: ANN401 - pynetdicom ships no types
    """Return a response; None for a message that is none."""
    if not getattr(message, "is_valid_response", False):
        return None
    encoded = getattr(message, "Identifier", None)
    return DimseResponse(
        int(message.Status),
        encoded.getvalue() if encoded is not None else b"",
        getattr(message, "NumberOfCompletedSuboperations", None),
        getattr(message, "NumberOfFailedSuboperations", None),
        getattr(message, "NumberOfWarningSuboperations", None),
    )
