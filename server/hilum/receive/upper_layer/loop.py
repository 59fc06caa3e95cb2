"""The Upper Layer of an established association on our side, until its end.

It implements PS3.8 9.2, Sta6, Sta8 and Sta13.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from enum import StrEnum

from hilum.dicom import pdu
from hilum.receive.upper_layer.connection import PduReader
from hilum.receive.upper_layer.messages import Messages
from hilum.receive.upper_layer.protocol import OF_OTHER_STATES, AbortReason, ProtocolError
from hilum.receive.upper_layer.provider import AcceptedContext, Fragment, StorageProvider
from hilum.receive.upper_layer.requests import RequestSender

# A peer that exceeds the negotiated length is served: no PDU is held in memory as a whole. A length
# above this one is nonsense.
_MAXIMUM_PDU_BYTES = 16 << 20
_SHORT_PDU_BYTES = 4
_DATA = 0  # control header of a fragment of a data set that is not its last (PS3.8 annex E.2)


class End(StrEnum):
    """How an association ended. The values are those of its account."""

    RELEASED = "released"
    ABORTED_BY_PEER = "aborted_by_peer"
    PROTOCOL_ERROR = "protocol_error"
    TIMED_OUT = "aborted_here"
    TOO_SLOW = "too_slow"
    SHUTDOWN = "shutdown"
    LOST = "connection_lost"


class Loop:
    """The loop, which receives on the thread that calls `run`.

    The socket has its time-outs, the kernel's or Python's, and the caller closes it.
    """

    def __init__(
        self,
        sock: socket.socket,
        contexts: Mapping[int, AcceptedContext],
        providers: Mapping[int, StorageProvider],
        closing: threading.Event,
        *,
        maximum_pdu_bytes: int = 0,
        outgoing: RequestSender | None = None,
    ) -> None:
        """Keep the parameters.

        `providers`: by Command Field of the request. `closing`: end after the message in progress.
        `maximum_pdu_bytes`: the largest PDU of the peer, 0: any. `outgoing`: the source of requests
        of ours, if there can be any.
        """
        self._sock = sock
        self._closing = closing
        self._outgoing = outgoing
        self._connection = PduReader(sock)
        self._messages = Messages(
            self._connection, contexts, providers, maximum_pdu_bytes, outgoing
        )
        self.last = b""
        """The last PDU for the peer, sent before its connection is closed (Sta13)."""
        self._is_given_up = False

    def run(self) -> End:
        """Receive until the association is over; `last` and `close` come next."""
        try:
            return self._receive()
        except ProtocolError as problem:  # AA-8: the peer broke the protocol
            return self._finish(End.PROTOCOL_ERROR, pdu.provider_abort(problem.reason))
        except (BlockingIOError, TimeoutError):  # AA-1: we end what the peer has left open
            return self._finish(End.TIMED_OUT, pdu.user_abort())
        except OSError:
            return self._lost()
        finally:
            self._messages.close()

    def close(self) -> None:
        """Free the buffer."""
        self._connection.close()

    def wake_if_idle(self) -> None:
        """End the wait for a next message, but no message in progress.

        It is called from another thread, when `closing` is set.
        """
        if not self._messages.is_busy:
            self._wake()

    def give_up(self) -> None:
        """Abort a slow peer, also inside a message; called from another thread."""
        self._is_given_up = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is over already
            # As a plain socket: an SSLSocket's own method would end TLS during the receiving
            # thread's call.
            socket.socket.shutdown(self._sock, socket.SHUT_RD)

    @property
    def whole_messages(self) -> int:
        """The number of completed requests."""
        return self._messages.whole

    @property
    def _is_to_end(self) -> bool:
        return self._closing.is_set() and not self._messages.is_busy

    def _receive(self) -> End:
        # Sta6. Between two messages a request of ours may be due, or the server ends.
        while not self._is_to_end:
            if (
                self._outgoing is not None
                and self._outgoing.is_expected
                and not self._messages.is_busy
            ):
                self._outgoing.await_peer(self._connection)
            kind, length = self._connection.unpack(pdu.HEADER)
            if kind != pdu.P_DATA_TF:
                return self._end_of(kind, length)
            self._p_data(length)
        return self._finish(End.SHUTDOWN, pdu.user_abort())

    def _p_data(self, length: int) -> None:
        if length > _MAXIMUM_PDU_BYTES:
            raise ProtocolError(AbortReason.INVALID_PARAMETER)
        # One PDU holds one or more Presentation Data Values, of one message or of several.
        left = length
        while left:
            if left < pdu.ITEM.size:
                raise ProtocolError(AbortReason.INVALID_PARAMETER)
            size, context_id, control = self._connection.unpack(pdu.ITEM)
            left -= pdu.ITEM_LENGTH_BYTES + size
            # A value shorter than its own two bytes of header, or longer than its PDU.
            if size < 2 or left < 0:
                raise ProtocolError(AbortReason.INVALID_PARAMETER)
            # Similar PDUs may follow only a full fragment of a data set that is alone in its PDU.
            is_alone = size + pdu.ITEM_LENGTH_BYTES == length
            beginning = (
                pdu.beginning(size, context_id, control) if control == _DATA and is_alone else b""
            )
            is_command = bool(control & pdu.IS_COMMAND)
            is_last = bool(control & pdu.IS_LAST)
            self._messages.take(Fragment(context_id, is_command, is_last, size - 2, beginning))

    def _end_of(self, kind: int, length: int) -> End:
        """Return the end by a PDU that is no P-DATA-TF."""
        # A PDU of another state, as a second A-ASSOCIATE-RQ, or of no known type. An A-RELEASE-RP
        # is one of them: we never ask for a release, so no release collides (Sta9 to Sta12).
        if kind not in (pdu.RELEASE_RQ, pdu.ABORT):
            raise ProtocolError(
                AbortReason.UNEXPECTED_PDU
                if kind in OF_OTHER_STATES
                else AbortReason.UNRECOGNISED_PDU
            )
        if length != _SHORT_PDU_BYTES:
            raise ProtocolError(AbortReason.INVALID_PARAMETER)
        # An A-ABORT gets no answer (AA-3).
        if kind == pdu.ABORT:
            return End.ABORTED_BY_PEER
        # Sta8, and at once our A-RELEASE-RP (AR-4). A message that is not complete is dropped.
        return self._finish(End.RELEASED, pdu.RELEASED)

    def _lost(self) -> End:
        """Return the end after a failed read: caused by us, or by a peer that is gone."""
        if self._is_given_up:
            return self._finish(End.TOO_SLOW, pdu.user_abort())
        return self._finish(End.SHUTDOWN, pdu.user_abort()) if self._is_to_end else End.LOST

    def _finish(self, end: End, last: bytes) -> End:
        self.last = last
        return end
