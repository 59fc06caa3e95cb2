"""A connection that speaks MLLP: messages between 0x0B and 0x1C 0x0D (HL7 MLLP Release 1)."""

from __future__ import annotations

import time
from typing import Final

from hilum.deliver.connection import ConnectionLost, PeerConnection, PeerSilent

_START: Final = b"\x0b"
_END: Final = b"\x1c"
_HALF: Final = "; half an acknowledgement came"
_UNFRAMED: Final = "; bytes came that are in no MLLP frame: does this port speak MLLP?"
_MAXIMUM_FRAME_BYTES: Final = 1 << 20  # of an acknowledgement, which has some hundreds


class MllpConnection(PeerConnection):
    """A connection that exchanges framed messages."""

    def send_message(self, content: bytes) -> None:
        """Send a message in its frame. Raises ConnectionLost."""
        self.send([_START, content, _END, b"\r"])

    def receive_message(self, deadline: float, seconds: float) -> bytes:
        """Return the next message, without its frame. Raises ConnectionLost.

        `seconds`: the limit that ends at `deadline`. Bytes between frames are no message, and are
        skipped. The carriage return after a frame counts as such, because some systems leave it
        out.
        """
        has_skipped = False
        while True:
            before, start, rest = bytes(self._unread).partition(_START)
            has_skipped = has_skipped or bool(before.strip())
            message, end, others = rest.partition(_END)
            if end:
                self._unread[:] = others
                return message
            self._unread[:] = start + rest
            if len(self._unread) > _MAXIMUM_FRAME_BYTES:
                raise ConnectionLost("it sends a message without an end")
            self._wait(deadline, seconds, has_begun=bool(start), has_skipped=has_skipped)

    def _wait(self, deadline: float, seconds: float, *, has_begun: bool, has_skipped: bool) -> None:
        try:
            if time.monotonic() >= deadline:
                raise PeerSilent(f"no answer within {seconds:g} s")
            self._read_more(deadline, seconds)
        except ConnectionLost as lost:
            words = _HALF if has_begun else _UNFRAMED if has_skipped else ""
            raise type(lost)(f"{lost}{words}") from lost
