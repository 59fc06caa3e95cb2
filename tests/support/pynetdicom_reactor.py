"""A race of pynetdicom's client (3.0.4), mended for tests, which send with it.

Its reactor says that it is paused a moment before it waits. If its thread loses the interpreter just behind that wait, `send_c_echo` and
its kin believe it, and the reactor takes the response that they wait for off the queue: "Received unexpected C-ECHO service message", and
after the DIMSE time-out an abort. Seen once in some thirty runs of all tests.
"""

from __future__ import annotations

from typing import Any

from pynetdicom.dimse import DIMSEServiceProvider

_GET_MSG = DIMSEServiceProvider.get_msg


def mend() -> None:
    """From now on a reactor that is to be paused takes nothing off the queue."""
    DIMSEServiceProvider.get_msg = _get_msg  # type: ignore[method-assign]


def _get_msg(self: DIMSEServiceProvider, block: bool = False) -> tuple[Any, Any]:
    if not block and not self.assoc._reactor_checkpoint.is_set():
        return None, None
    return _GET_MSG(self, block)
