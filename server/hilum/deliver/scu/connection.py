"""A connection that speaks whole PDUs (PS3.8 9.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from hilum.deliver.connection import ConnectionLost, PeerConnection
from hilum.dicom import pdu

_HEADER_BYTES: Final = pdu.HEADER.size
# of a response; the largest valid one is an A-ASSOCIATE-AC with 128 contexts
_MAXIMUM_PDU_BYTES: Final = 1 << 20
_TLS_ALERT: Final = b"\x15\x03"  # RFC 8446 5.1; PDU types end at 7


class SocketReader(PeerConnection):
    """A connection that exchanges whole PDUs."""

    def receive(self, seconds: float | None = None) -> tuple[int, bytes]:
        """Return the next PDU: its type, and all its bytes. Raises ConnectionLost."""
        limit = self._timeout if seconds is None else seconds
        deadline = time.monotonic() + limit
        self._fill(_HEADER_BYTES, deadline, limit)
        if self._unread.startswith(_TLS_ALERT):
            raise ConnectionLost(
                "it answers in TLS: set tls of this destination, or give --tls to `hilum send`"
            )
        size = _HEADER_BYTES + int.from_bytes(self._unread[2:_HEADER_BYTES], "big")
        if size > _MAXIMUM_PDU_BYTES:
            raise ConnectionLost("it answers with something that is no DICOM")
        self._fill(size, deadline, limit)
        whole = bytes(self._unread[:size])
        del self._unread[:size]
        return whole[0], whole

    def _fill(self, size: int, deadline: float, seconds: float) -> None:
        while len(self._unread) < size:
            self._read_more(deadline, seconds)


class PdvFragment(NamedTuple):
    """One Presentation Data Value of a P-DATA-TF PDU (PS3.8 9.3.5.1, annex E)."""

    context_id: int
    is_command: bool
    is_last: bool
    content: bytes


def pdvs(p_data: bytes) -> Iterator[PdvFragment]:
    """Return the PDVs of a P-DATA-TF PDU. Raises ConnectionLost."""
    at = _HEADER_BYTES
    while at < len(p_data):
        size = int.from_bytes(p_data[at : at + pdu.ITEM_LENGTH_BYTES], "big")
        end = at + pdu.ITEM_LENGTH_BYTES + size
        if size < 2 or end > len(p_data):
            raise ConnectionLost("it answers with a P-DATA-TF that is not well formed")
        _, context_id, control = pdu.ITEM.unpack_from(p_data, at)
        yield PdvFragment(
            context_id,
            bool(control & pdu.IS_COMMAND),
            bool(control & pdu.IS_LAST),
            p_data[at + pdu.ITEM.size : end],
        )
        at = end
