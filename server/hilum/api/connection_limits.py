"""Limits on connections: time without a request, and the number of open ones.

Callers without a token can also reach the port.
"""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass, field
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from hilum.api.middleware import STREAMED

_MOST: Final = 1000
_DRAINED_BYTES: Final = 64 << 10


def _most() -> int:
    """Return half of the process's descriptors.

    The ledger, the archive and the sockets that asyncio accepts at once also need some.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(_MOST, soft // 2)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of connections; uvicorn bounds only how long one is idle between two requests."""

    head_seconds: float = 20.0
    """From the connection, or the first byte after an answer, to the whole head of a request."""
    unread_seconds: float = 60.0
    """How long a peer may leave a response unread."""
    most: int = field(default_factory=_most)
    """Limit of open connections. Above it, the one that has owed a request longest is closed.

    If every connection has sent its request, the new one is closed.
    """


class ThrottledConnection(H11Protocol):
    """Knows since when its peer keeps it waiting.

    The server looks now and then, so that no request costs a timer.
    """

    def __init__(
        # Uvicorn's.
        self,
        *arguments: Any,  # noqa: ANN401
        limits: Limits,
        has_come: asyncio.Event,
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*arguments, **named)
        self._limits = limits
        self._has_come = has_come
        self.owes_since: float | None = (
            time.monotonic()
        )  # a request is due, or the rest of one that is answered
        self._drained = 0  # bytes of that rest
        self._unsent = 0
        self._unsent_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's
        """Make room for the connection, or close it."""
        super().connection_made(transport)
        self._has_come.set()
        if len(self.connections) > self._limits.most:
            others = [
                item
                for item in self.connections
                if isinstance(item, ThrottledConnection) and item is not self and item.is_spare
            ]
            min(others, key=lambda item: item.owes_since or 0.0, default=self).abort()

    def data_received(self, data: bytes) -> None:
        """Start the request timeout: uvicorn's own ends at the first byte of a request."""
        super().data_received(data)
        if not self._is_idle and not self._owes_body:
            self.owes_since = None
            return
        if self.owes_since is None:
            self.owes_since = time.monotonic()
            self._drained = 0
        if self.conn.their_state is h11.SEND_BODY:
            self._drained += len(data)

    def send_400_response(self, msg: str) -> None:
        """As uvicorn, which tries it also where an answer has begun, and ends in a traceback."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """From here on it may be closed for another one.

        How long it may stay is counted from its next byte.
        """
        self.owes_since = None
        super().on_response_complete()

    def close_if_late(self, now: float) -> None:
        """`now`: of time.monotonic."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent = unsent
            self._unsent_since = now
        elif now - self._unsent_since > self._limits.unread_seconds:
            self.abort()
        if (
            self._is_idle
            and not unsent
            and self.owes_since is not None
            and now - self.owes_since > self._limits.head_seconds
        ):
            if self._drained < _DRAINED_BYTES:
                self.abort()
            else:  # a large body that was refused: its sender reads the answer after it
                self.owes_since = now
                self._drained = 0

    @property
    def is_spare(self) -> bool:
        """Return whether closing loses no answer and no complete request."""
        return (self._is_idle or self._owes_body) and not self.transport.get_write_buffer_size()

    @property
    def _owes_body(self) -> bool:
        """Of a request that is not looked at before its body is whole, nor its token.

        `Around` waits for it, and answers 408.
        """
        is_due = (
            self.conn.their_state is h11.SEND_BODY
            and not self._is_idle
            and not self.cycle.response_started
        )
        return is_due and not self.scope["path"].startswith(STREAMED)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def abort(self) -> None:
        """Close it without a word."""
        self.connections.discard(self)
        self.transport.abort()
