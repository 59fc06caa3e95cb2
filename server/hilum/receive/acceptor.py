"""Our side of one association, from the request to its row in the ledger.

Handlers of notification events run inside pynetdicom, which swallows their exceptions; so they are few lines that cannot fail.
"""

from __future__ import annotations

import contextlib
import socket
import time

from pynetdicom import evt
from pynetdicom.association import Association
from pynetdicom.events import Event
from pynetdicom.pdu import A_ABORT_RQ, A_ASSOCIATE_AC, P_DATA_TF
from pynetdicom.pdu_primitives import A_ABORT, A_ASSOCIATE
from pynetdicom.presentation import build_context

from hilum import telemetry, tracing
from hilum.dimse import pdu
from hilum.receive import policy
from hilum.receive.account import TOO_SLOW, Account, printable
from hilum.receive.advice import NotAccepted, advise
from hilum.receive.commitment import Commitment
from hilum.receive.door import Door
from hilum.receive.dripping import Dripping
from hilum.receive.handover import Handover
from hilum.receive.prompt_answer import PromptAnswer
from hilum.receive.storage import Storage
from hilum.receive.streamed_association import StreamedAssociation
from hilum.receive.streamed_storage import StreamedStorage
from hilum.receive.streaming.protocol import Reason
from hilum.receive.tls import certificate_names, shut_down

_log = telemetry.logger("receive")

_CLOSE_SECONDS = 2.0  # a peer closes its connection this soon after release, rejection or abort, or we do
_LOOK_SECONDS, _ESTABLISHED_LOOK_SECONDS = 0.25, 1.0


class Acceptor:
    """One association. `assoc` is pynetdicom's; its thread has not started yet."""

    def __init__(self, assoc: Association, peer_address: str, door: Door) -> None:
        self.assoc = assoc
        self._door = door
        shown = tracing.Association("association") if tracing.is_on() else None
        self._account = Account(peer_address, started_at=time.time(), shown=shown)
        self._storage = Storage(assoc, self._account, door.reception, door.settings.maximum_object_bytes)
        self._commitment = Commitment(assoc, self._account, door.desk, lambda: self._storage.is_busy)
        self._handover = Handover(assoc, is_wanted=door.is_streaming)
        self._streamed: StreamedAssociation | None = None
        self._dripping = Dripping(door.settings)
        self._terms = door.policy.terms("")
        self._is_closed = False
        for event, handler in (
            (evt.EVT_REQUESTED, self._requested),
            (evt.EVT_ESTABLISHED, self._established),
            (evt.EVT_PDU_RECV, self._storage.pdu_received),
            (evt.EVT_PDU_SENT, self._pdu_sent),
            (evt.EVT_DIMSE_RECV, self._storage.message_received),
            (evt.EVT_DIMSE_RECV, self._commitment.message_received),
            (evt.EVT_C_STORE, self._storage.store),
            (evt.EVT_N_ACTION, self._commitment.requested),
            (evt.EVT_ACSE_RECV, self._acse_received),
            (evt.EVT_CONN_CLOSE, self._connection_closed),
        ):
            assoc.bind(event, handler)
        PromptAnswer(assoc)

    def _requested(self, _event: Event) -> None:
        self._account.is_requested = True
        try:
            self._judge(self.assoc.requestor.primitive)
        except Exception:  # noqa: BLE001 - pynetdicom would swallow it, and accept what it supports by itself from anybody
            _log.exception("request_not_judged")
            self._reject(policy.FAILED)

    def _judge(self, request: A_ASSOCIATE) -> None:
        """Reject or abort, or say what is supported and let pynetdicom negotiate."""
        account = self._account
        called, calling = str(request.called_ae_title), str(request.calling_ae_title)
        account.called_ae_title, account.calling_ae_title = printable(called), printable(calling)
        self._terms = self._door.policy.terms(calling)
        names = certificate_names(self._socket)
        if (rejection := self._door.admit(self, called, calling, account.peer_address, names)) is not None:
            self._reject(rejection)
            return
        contexts = request.presentation_context_definition_list
        if not all(context.abstract_syntax and context.transfer_syntax for context in contexts):  # PS3.8 9.3.2.2; pynetdicom dies of it
            self._abort_by_provider()
            self.assoc.kill()
            return
        proposed = [context.abstract_syntax for context in contexts]
        # Only what this peer asks for: pynetdicom compares, and would copy, every context that we support.
        self.assoc.acceptor.supported_contexts = [
            build_context(abstract, list(syntaxes)) for abstract, syntaxes in policy.supported(proposed, self._terms).items()
        ]

    def _reject(self, rejection: policy.Rejection) -> None:
        self._account.rejection = rejection
        self.assoc.acse.send_reject(rejection.result, rejection.source, rejection.diagnostic)
        self.assoc.kill()

    def _established(self, _event: Event) -> None:
        self._account.is_established = True
        telemetry.ASSOCIATIONS_OPEN.inc()
        accepted = frozenset(context.abstract_syntax for context in self.assoc.accepted_contexts)
        self._account.accepted = accepted
        refused = tuple(
            NotAccepted(context.abstract_syntax, is_known=context.result == 4)
            for context in self.assoc.rejected_contexts
            if context.abstract_syntax not in accepted
        )
        self._account.not_accepted, self._account.advice_on_contexts = refused, advise(refused, self._terms)
        if (sock := self._handover.take_over()) is not None:
            provider = StreamedStorage(self._account, self._door.reception)
            self._streamed = StreamedAssociation(self.assoc, sock, provider, self._door.closing)
            self._streamed.run(self._account)

    def _acse_received(self, event: Event) -> None:
        if isinstance(event.primitive, A_ABORT):
            self._account.abort_reason = "aborted_by_peer"

    def _pdu_sent(self, event: Event) -> None:
        if isinstance(event.pdu, A_ASSOCIATE_AC):
            self._handover.accepted()
        elif isinstance(event.pdu, A_ABORT_RQ):
            self._handover.failed()
            self._account.is_nonsense = not self._account.is_requested
            # PS3.8 9.3.8: source 2 is the provider, which has seen something that must not be; ours is a time-out or the end.
            self._account.abort_reason = self._account.abort_reason or ("protocol_error" if event.pdu.source == 2 else "aborted_here")
        elif isinstance(event.pdu, P_DATA_TF) and self._door.closing.is_set():
            # The response to the request in progress is out; the next one would have no time.
            self._account.abort_reason = "shutdown"
            self.assoc.abort(block=False)

    def _connection_closed(self, _event: Event) -> None:
        self._is_closed = True
        self._handover.failed()
        if not self._account.is_requested:
            # Else the association's thread waits out the whole time-out for a request that cannot come.
            self.assoc.dul.to_user_queue.put(None)

    @property
    def is_open(self) -> bool:
        """Whether it is established, or may yet be."""
        return self.assoc.is_established or not (self._account.is_established or self._is_over)

    @property
    def _is_over(self) -> bool:
        is_ended = self.assoc.is_released or self.assoc.is_aborted or self.assoc.is_rejected
        return is_ended or self._is_closed or self._is_late

    @property
    def _is_late(self) -> bool:
        """Whether the request should have come by now; one that stops in its middle holds pynetdicom's own time-out up."""
        return not self._account.is_requested and time.time() - self._account.started_at > self._door.settings.acse_timeout_seconds

    def attend(self) -> None:
        """Wait for the end of the association, cut off a peer that does not close, and hand its row on."""
        over_since: float | None = None
        while self.assoc.is_alive():
            self.assoc.join(_ESTABLISHED_LOOK_SECONDS if self.assoc.is_established else _LOOK_SECONDS)
            if self._is_unreadable:
                self._abort_unreadable()
            if self.assoc.is_established and self._is_dripping:
                self._abort_dripping()
            if self._is_over:
                over_since = over_since or time.monotonic()
                self._make_end(time.monotonic() - over_since)
        try:
            self._door.leave(self)
        finally:
            self._write_row()

    @property
    def _is_unreadable(self) -> bool:
        """Whether the thread that reads has died of the request, as pynetdicom's does of an even Presentation Context ID."""
        is_ended = self._account.is_requested or self._account.is_nonsense or self._is_closed
        return not is_ended and self.assoc.dul.ident is not None and not self.assoc.dul.is_alive()

    def _abort_unreadable(self) -> None:
        self._account.is_nonsense = True
        self._abort_by_provider()
        self._is_closed = True
        self.assoc.dul.to_user_queue.put(None)

    @property
    def _is_dripping(self) -> bool:
        receiver = self._streamed or self._storage
        sock = self._socket
        return sock is not None and self._dripping.is_found(sock, receiver.whole_messages)

    def _abort_dripping(self) -> None:
        self._account.slowness_advice = self._dripping.advice
        if self._streamed is not None:
            self._streamed.give_up()
            return
        self._account.abort_reason = TOO_SLOW
        if type(self._socket) is socket.socket:  # under TLS another thread reads, and nobody may write beside it
            self._say(pdu.user_abort())
        self.cut()

    def _abort_by_provider(self) -> None:
        """Past pynetdicom, which says of every abort before the acceptance that it is the user's (PS3.8 9.3.8)."""
        self._account.abort_reason = "protocol_error"
        self.assoc.is_aborted = True
        self._say(pdu.provider_abort(Reason.INVALID_PARAMETER))
        self.cut()

    def _say(self, last: bytes) -> None:
        """Past pynetdicom."""
        if (sock := self._socket) is not None:
            with contextlib.suppress(OSError):
                sock.sendall(last)

    @property
    def _socket(self) -> socket.socket | None:
        wrapped = self.assoc.dul.socket
        return None if wrapped is None else wrapped.socket

    def _make_end(self, seconds: float) -> None:
        if self._is_closed:
            self.assoc.kill()
        elif seconds > _CLOSE_SECONDS:
            self.cut()

    def close_if_idle(self) -> None:
        """At the end of the process: abort between two messages, never inside one."""
        if not self._account.is_requested:
            self.cut()
        elif self._streamed is not None:
            self._streamed.wake_if_idle()
        elif self.assoc.is_established and not self._storage.is_busy:
            self._account.abort_reason = "shutdown"
            self.assoc.abort(block=False)

    def cut(self) -> None:
        """Close the connection hard; pynetdicom's threads notice."""
        if (sock := self._socket) is not None:
            with contextlib.suppress(OSError):
                shut_down(sock, socket.SHUT_RDWR)

    def _write_row(self) -> None:
        if self._account.is_established:
            telemetry.ASSOCIATIONS_OPEN.dec()
        if (outcome := self._account.outcome(is_released=self.assoc.is_released)) is None:
            return
        if self._account.is_too_slow:
            _log.warning("sender_too_slow", advice="GET /api/v1/associations names it; receive.minimum_bytes_per_second is the limit")
        telemetry.ASSOCIATIONS.labels(outcome=TOO_SLOW if self._account.is_too_slow else outcome).inc()
        self._account.show(outcome)
        self._door.accounts.put(self._account.record(outcome, time.time()))
