"""Races of pynetdicom's client (3.0.4), mended for tests, which send with it.

Its reactor says that it is paused a moment before it waits. If its thread loses the interpreter
just behind that wait, `send_c_echo` and its kin believe it, and the reactor takes the response that
they wait for off the queue: "Received unexpected C-ECHO service message", and after the DIMSE
time-out an abort. Seen once in some thirty runs of all tests.

A report of storage commitment is served on a thread of its own, which says for the reactor that it
is paused, and then that it is not.
Who releases meanwhile overtakes the response, which is no event of the state then: the thread that
reads and writes dies, and `release` waits for 30 s. Or the reactor has paused before that thread
says that it has not: `release` looks for it for ever, 10,000 times a second.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from pynetdicom.association import Association
from pynetdicom.dimse import DIMSEServiceProvider

_GET_MSG, _INIT = DIMSEServiceProvider.get_msg, Association.__init__
_RELEASE, _SERVE_REQUEST = Association.release, Association._serve_request
_LOOK_SECONDS = 0.002


class _Checkpoint(threading.Event):
    """Where a reactor is held up.

    Whether it is there; and the requests that are being served meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set()
        self.is_reached = False
        self.served: set[int] = set()  # threads

    def wait(self, timeout: float | None = None) -> bool:
        self.is_reached = True
        try:
            return super().wait(timeout)
        finally:
            self.is_reached = False


def mend() -> None:
    """From now on a reactor that is to be paused takes nothing off the queue, and a release waits for responses that are under way."""
    DIMSEServiceProvider.get_msg = _get_msg  # type: ignore[method-assign]
    Association.__init__ = _init  # type: ignore[method-assign]
    Association.release = _release  # type: ignore[method-assign]
    Association._serve_request = _serve_request  # type: ignore[method-assign]
    Association._is_paused = property(_is_paused, _say_paused)  # type: ignore[assignment]


def _init(self: Any, *arguments: Any, **named: Any) -> None:
    self._says_paused = False
    _INIT(self, *arguments, **named)
    self._reactor_checkpoint = _Checkpoint()


def _is_paused(self: Any) -> bool:
    return bool(self._says_paused or self._reactor_checkpoint.is_reached)


def _say_paused(self: Any, value: bool) -> None:
    self._says_paused = value


def _get_msg(self: DIMSEServiceProvider, block: bool = False) -> tuple[Any, Any]:
    if not block and not self.assoc._reactor_checkpoint.is_set():
        return None, None
    return _GET_MSG(self, block)


def _serve_request(self: Any, *arguments: Any) -> None:
    served, thread = self._reactor_checkpoint.served, threading.get_ident()
    served.add(thread)
    try:
        _SERVE_REQUEST(self, *arguments)
    finally:
        served.discard(thread)


def _release(self: Any) -> None:
    checkpoint = self._reactor_checkpoint
    is_own = threading.get_ident() in {self.ident, *checkpoint.served}
    if self.is_established and not is_own:
        checkpoint.clear()
        while (
            self.is_established
            and self.is_alive()
            and (checkpoint.served or not checkpoint.is_reached)
        ):
            time.sleep(_LOOK_SECONDS)
    _RELEASE(self)
