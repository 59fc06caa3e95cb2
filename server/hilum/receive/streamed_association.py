"""An accepted association whose socket was taken over from pynetdicom: the loop, and what it leaves behind for pynetdicom to find."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping

from pynetdicom.association import Association

from hilum import telemetry
from hilum.receive.account import Account
from hilum.receive.streaming.loop import End, Loop
from hilum.receive.streaming.provider import Context, Provider

_log = telemetry.logger("receive")


class StreamedAssociation:
    """Runs on pynetdicom's thread and socket."""

    def __init__(self, assoc: Association, sock: socket.socket, provider: Provider, closing: threading.Event) -> None:
        self._assoc = assoc
        self._loop = Loop(sock, _contexts(assoc), provider, closing, maximum_pdu_bytes=assoc.requestor.maximum_length)

    def run(self, account: Account) -> None:
        """Until the association is over; pynetdicom then finds it ended, and closes the connection."""
        end = self._end()
        account.abort_reason = end.value
        self._assoc.is_released = end is End.RELEASED
        self._assoc.is_aborted = end is not End.RELEASED
        self._assoc.is_established = False
        self._loop.close()

    def _end(self) -> End:
        try:
            return self._loop.run()
        except Exception:  # noqa: BLE001 - a bug in it ends this association only, and pynetdicom would not say a word
            _log.exception("association_failed")
            return End.PROTOCOL_ERROR

    @property
    def whole_messages(self) -> int:
        """So many requests have come to their end."""
        return self._loop.whole_messages

    def give_up(self) -> None:
        """Abort a peer that drips, from another thread."""
        self._loop.give_up()

    def wake_if_idle(self) -> None:
        """At the end of the process, from another thread."""
        self._loop.wake_if_idle()


def _contexts(assoc: Association) -> Mapping[int, Context]:
    return {
        context.context_id: Context(str(context.abstract_syntax), str(context.transfer_syntax[0])) for context in assoc.accepted_contexts
    }
