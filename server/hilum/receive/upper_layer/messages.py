"""DIMSE messages from Presentation Data Values (PS3.7 6.3, PS3.8 annex E), and their responses."""

from __future__ import annotations

from collections.abc import Mapping

from hilum.dicom import command_set, pdu
from hilum.receive.upper_layer import command
from hilum.receive.upper_layer.command import Command
from hilum.receive.upper_layer.connection import PduReader
from hilum.receive.upper_layer.protocol import AbortReason, ProtocolError
from hilum.receive.upper_layer.provider import (
    AcceptedContext,
    DataSetSink,
    Fragment,
    StorageProvider,
)
from hilum.receive.upper_layer.requests import RequestSender

_MAXIMUM_COMMAND_BYTES = 64 << 10
_PROCESSING_FAILURE = 0x0110  # PS3.7 annex C.5.14: takes the place of a missing Status


class Messages:
    """One message at a time: its command, then its data set, if any, then the response."""

    def __init__(
        self,
        connection: PduReader,
        contexts: Mapping[int, AcceptedContext],
        providers: Mapping[int, StorageProvider],
        maximum_pdu_bytes: int,
        outgoing: RequestSender | None,
    ) -> None:
        self._connection = connection
        self._contexts = contexts
        self._providers = providers
        self._maximum_pdu_bytes = maximum_pdu_bytes
        self._outgoing = outgoing
        self._context_id: int | None = None  # of the message in progress
        self._encoded = b""
        self._request: Command | None = None
        self._incoming: DataSetSink | None = None
        self._pieces: list[memoryview] = []
        self.whole = 0  # the number of completed requests
        connection.release = self._pass_on

    @property
    def is_busy(self) -> bool:
        """Whether a message is being received or its response is due."""
        return self._context_id is not None

    def take(self, fragment: Fragment) -> None:
        """Take the bytes of a fragment, and similar fragments after it.

        Raises ProtocolError, OSError.
        """
        if fragment.is_command:
            self._command_fragment(fragment.context_id, fragment.size)
            if fragment.is_last:
                self._begin(fragment.context_id, command.decode(self._encoded))
        elif self._data_fragment(fragment):
            self._end(fragment.context_id)

    def _command_fragment(self, context_id: int, size: int) -> None:
        # Its command is complete already, or another context's message is in progress: fragments of
        # two messages must not alternate (PS3.7 6.3.1).
        if self._request is not None or self._context_id not in (None, context_id):
            raise ProtocolError(AbortReason.UNEXPECTED_PARAMETER)
        # A context that was not accepted, or a command larger than any real one.
        if context_id not in self._contexts or len(self._encoded) + size > _MAXIMUM_COMMAND_BYTES:
            raise ProtocolError(AbortReason.INVALID_PARAMETER)
        self._context_id = context_id
        while size:
            piece = self._connection.take(size)
            self._encoded += piece
            size -= len(piece)

    def _data_fragment(self, fragment: Fragment) -> bool:
        """Return whether the data set is complete."""
        # A data set before its command, or in another context than its command.
        if self._request is None or fragment.context_id != self._context_id:
            raise ProtocolError(AbortReason.UNEXPECTED_PARAMETER)
        left, is_last = self._lend(fragment)
        # The bytes that no other reader took.
        while left:
            piece = self._connection.take(left)
            self._pieces.append(piece)
            left -= len(piece)
        if fragment.beginning and not is_last:
            self._pieces += self._connection.repeated(fragment)
        return is_last

    def _lend(self, fragment: Fragment) -> tuple[int, bool]:
        """Let the data set's taker read the connection itself.

        Return how many bytes of the fragment are left, and whether it has read the last fragment.
        """
        left = fragment.size
        incoming = self._incoming
        if incoming is None or not self._connection.is_plain:
            return left, fragment.is_last
        # First what the data set's taker wants to see piece by piece: its header.
        while left and (least := incoming.reads_after):
            piece = self._connection.take(min(left, least))
            self._pieces.append(piece)
            self._pass_on()
            left -= len(piece)
        if left and least == 0:
            self._pass_on()
            return self._connection.lend(fragment, left, incoming.receive)
        return left, fragment.is_last

    def _begin(self, context_id: int, request: Command) -> None:
        # PS3.7 9.3.2.3: it has no response, and there is nothing to cancel
        if request.field == command_set.C_CANCEL_RQ:
            self.whole += 1
            self._forget()
            return
        if request.is_response:
            self._take_response(request)
        # A request that no response could name.
        elif request.message_id is None:
            raise ProtocolError(AbortReason.INVALID_PARAMETER)
        # C-ECHO and unrecognised operations have no provider: `_end` answers them.
        elif (provider := self._providers.get(request.field)) is not None:
            self._incoming = provider.begin(request, self._contexts[context_id])
        self._request = request
        # Else its data set comes next.
        if not request.has_data_set:
            self._end(context_id)

    def _take_response(self, response: Command) -> None:
        """Take the response to a request of ours, which is always an N-EVENT-REPORT."""
        if (
            self._outgoing is None
            or response.field != command_set.N_EVENT_REPORT_RQ | command_set.IS_RESPONSE
        ):
            raise ProtocolError(AbortReason.INVALID_PARAMETER)
        status = response.number(command_set.STATUS)
        message_id = response.number(command_set.MESSAGE_ID_BEING_RESPONDED_TO)
        self._outgoing.answered(message_id, _PROCESSING_FAILURE if status is None else status)

    def _pass_on(self) -> None:
        """Pass on the pieces before their bytes are overwritten."""
        if self._incoming is not None and self._pieces:
            self._incoming.write(self._pieces)
        self._pieces = []

    def _end(self, context_id: int) -> None:
        self.whole += 1
        self._pass_on()
        # A response of the peer gets none.
        if self._request is not None and not self._request.is_response:
            self._connection.send(
                pdu.message(
                    context_id,
                    self._answer(self._request),
                    self._maximum_pdu_bytes,
                    is_command=True,
                )
            )
        self.close()
        self._forget()

    def _answer(self, request: Command) -> bytes:
        if self._incoming is not None:
            verdict = self._incoming.finish()
            return command.response(request, verdict.status, verdict.comment)
        return command.response(
            request, 0 if request.field == command_set.C_ECHO_RQ else command.UNRECOGNISED_OPERATION
        )

    def _forget(self) -> None:
        self._context_id = self._request = None
        self._encoded = b""

    def close(self) -> None:
        """Remove all of a message without a response. Idempotent."""
        if self._incoming is not None:
            self._incoming.close()
        self._incoming = None
        self._pieces = []
