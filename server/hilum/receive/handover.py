"""Taking the socket of an accepted association over from pynetdicom, before it has read a byte behind the A-ASSOCIATE-RQ.

By public names only. What its documentation does not promise, `tests/contract/test_handover.py` holds it to:
EVT_PDU_SENT comes on the thread that reads, between the A-ASSOCIATE-AC and the next read, and `kill_dul` prevents that read.
"""

from __future__ import annotations

import socket
import threading

from pynetdicom.association import Association

from hilum.receive.terms import STREAMED_SOP_CLASSES

_PATIENCE_SECONDS = 5.0


class Handover:
    """Of one association, if it `is_wanted`. `take_over` runs on its thread, the rest on the thread that reads PDUs."""

    def __init__(self, assoc: Association, *, is_wanted: bool = True) -> None:
        self._assoc, self._is_wanted = assoc, is_wanted
        self._is_possible = False
        self._is_decided = threading.Event()

    def accepted(self) -> None:
        """The A-ASSOCIATE-AC is on the wire: stop reading, if the loop can serve all that was accepted."""
        accepted = {context.abstract_syntax for context in self._assoc.accepted_contexts}
        if self._is_wanted and accepted <= STREAMED_SOP_CLASSES:
            self._assoc.dul.kill_dul()
            self._is_possible = True
        self._is_decided.set()

    def failed(self) -> None:
        """There will be no A-ASSOCIATE-AC, or there was one and pynetdicom goes on."""
        self._is_decided.set()

    def take_over(self) -> socket.socket | None:
        """The socket, which nobody else reads from now on; None: it is pynetdicom's."""
        self._is_decided.wait(_PATIENCE_SECONDS)
        if not self._is_possible:
            return None
        self._assoc.dul.join(_PATIENCE_SECONDS)
        wrapped = self._assoc.dul.socket
        return None if self._assoc.dul.is_alive() or wrapped is None else wrapped.socket
