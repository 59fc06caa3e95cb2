"""The acceptor of PS3.8: one connection, from its first byte to the row of its association."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from typing import Final

from hilum.dicom import command_set, pdu
from hilum.dicom.associate import Malformed, Request, decode_request, title_text, titles
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.observability import telemetry, tracing
from hilum.receive.association.admission import AdmissionControl
from hilum.receive.association.negotiation import Acceptance, accept
from hilum.receive.association.slow_sender import SlowSenderDetector
from hilum.receive.association.tls import (
    HandshakeFailed,
    ServerTls,
    begin_tls,
    certificate_names,
    shake_hands,
    shut_down,
)
from hilum.receive.commitment.scp import CommitmentScp
from hilum.receive.commitment.scu import CommitmentScu
from hilum.receive.policy import association_policy
from hilum.receive.policy.advice import advise
from hilum.receive.policy.association_policy import AssociationRejection
from hilum.receive.policy.association_record import (
    NOT_DICOM,
    TOO_MANY_CONNECTIONS,
    TOO_SLOW,
    AssociationRecorder,
    UnreportedRefusal,
)
from hilum.receive.policy.sender_policy import COMMITMENT
from hilum.receive.storage.scp import StreamedStorage
from hilum.receive.upper_layer.connection import say_last
from hilum.receive.upper_layer.first_pdu import read_first_pdu
from hilum.receive.upper_layer.loop import End, Loop
from hilum.receive.upper_layer.protocol import AbortReason, ProtocolError
from hilum.receive.upper_layer.provider import StorageProvider
from hilum.receive.upper_layer.requests import RequestSender

_log = telemetry.logger("receive")

_LAST_WORD_BYTES: Final = 4096  # a buffer for bytes that a peer sends after the end


class Acceptor:
    """One connection. `run` is its thread; the other methods may be called from any thread."""

    def __init__(
        self,
        sock: socket.socket,
        peer_address: str,
        control: AdmissionControl,
        certificates: ServerTls | None = None,
    ) -> None:
        self._sock = sock
        self._control = control
        self._certificates = certificates
        shown = tracing.AssociationSpan("association") if tracing.is_on() else None
        self.account = AssociationRecorder(peer_address, started_at=time.time(), shown=shown)
        self._dripping = SlowSenderDetector(control.settings)
        self._loop: Loop | None = None
        self._outgoing: RequestSender | None = None

    def run(self) -> None:
        """Serve the connection until it is closed."""
        last = b""
        try:
            last = self._converse()
        except HandshakeFailed as failure:
            self._handshake_failed(failure)
        except OSError:  # the peer is gone, or was dropped
            pass
        finally:
            self._end(last)

    def _converse(self) -> bytes:
        """Return the last PDU for the peer. Raises HandshakeFailed, OSError."""
        seconds = self._control.settings.acse_timeout_seconds
        if self._certificates is not None:
            self._sock = secured = begin_tls(self._sock, self._certificates.context())
            shake_hands(secured, seconds)
        answer = self._answer(seconds)
        return self._associate(answer) if isinstance(answer, Acceptance) else answer

    def _answer(self, seconds: float) -> Acceptance | bytes:
        """Return the acceptance of the request, or the last PDU for the peer. Raises OSError.

        The request itself is not kept.
        """
        try:
            first = read_first_pdu(self._sock, seconds)
        except ProtocolError as problem:
            self.account.unheard = NOT_DICOM
            return pdu.provider_abort(problem.reason)
        except TimeoutError:
            self.account.unheard = _silent(seconds)
            return b""
        try:
            self._note(*titles(first))
            return self._judge(decode_request(first))
        except Malformed as problem:
            return self._malformed(problem)

    def _judge(self, request: Request) -> Acceptance | bytes:
        try:
            if (rejection := _of_another_version(request) or self._admission()) is not None:
                return self._reject(rejection)
            return self._negotiate(request)
        except Exception:  # noqa: BLE001 - the sender may come back, and the other senders are served
            _log.exception("request_not_judged")
            return self._reject(association_policy.FAILED)

    def _malformed(self, problem: Malformed) -> bytes:
        """Note the fault of a request; a row names its AE Titles where it has them."""
        if self.account.is_requested:
            self.account.abort_reason = End.PROTOCOL_ERROR.value
            self.account.request_problem = str(problem)
        else:
            self.account.unheard = NOT_DICOM
        return pdu.provider_abort(AbortReason.INVALID_PARAMETER)

    def _admission(self) -> AssociationRejection | None:
        titles = self.account.called_ae_title, self.account.calling_ae_title
        return self._control.admit(
            self, *titles, self.account.peer_address, certificate_names(self._sock)
        )

    def _note(self, called: bytes, calling: bytes) -> None:
        self.account.is_requested = True
        self.account.called_ae_title = title_text(called)
        self.account.calling_ae_title = title_text(calling)

    def _reject(self, rejection: AssociationRejection) -> bytes:
        self.account.rejection = rejection
        return pdu.rejection(rejection.result, rejection.source, rejection.diagnostic)

    def _negotiate(self, request: Request) -> Acceptance:
        terms = self._control.policy.terms(self.account.calling_ae_title)
        proposed = [context.abstract_syntax for context in request.contexts]
        # An AE Title that we ask for storage commitment reports as SCP, whatever it may send.
        is_asked = self.account.calling_ae_title.strip() in self._control.reports.scps
        reported = COMMITMENT if is_asked else {}
        acceptance = accept(
            request,
            {**association_policy.supported(proposed, terms), **reported},
            self._control.settings.maximum_pdu_bytes,
            scp_of=reported,
        )
        self.account.accepted = frozenset(
            context.sop_class_uid for context in acceptance.contexts.values()
        )
        self.account.not_accepted = acceptance.not_accepted
        self.account.advice_on_contexts = advise(acceptance.not_accepted, terms)
        return acceptance

    def _associate(self, acceptance: Acceptance) -> bytes:
        """Serve the association until it is over. Raises OSError before it is established."""
        self._control.pending.leave(self, self.account.peer_address)
        self._sock.settimeout(self._control.settings.acse_timeout_seconds)
        self._sock.sendall(acceptance.encoded)
        _limit_silence(self._sock, self._control.settings.network_timeout_seconds)
        self.account.is_established = True
        telemetry.ASSOCIATIONS_OPEN.inc()
        loop = self._make_loop(acceptance)
        try:
            self._loop = loop
            self.account.abort_reason = self._served(loop).value
            return loop.last
        finally:
            telemetry.ASSOCIATIONS_OPEN.dec()
            loop.close()

    def _make_loop(self, acceptance: Acceptance) -> Loop:
        providers: dict[int, StorageProvider] = {
            command_set.C_STORE_RQ: StreamedStorage(self.account, self._control.reception)
        }
        is_accepted = STORAGE_COMMITMENT in self.account.accepted
        if is_accepted:
            providers[command_set.N_EVENT_REPORT_RQ] = CommitmentScu(
                self.account, self._control.reports
            )
        if is_accepted and self._control.settings.storage_commitment:
            self._outgoing = RequestSender(self._control.settings.network_timeout_seconds)
            providers[command_set.N_ACTION_RQ] = CommitmentScp(
                self.account,
                self._control.commitments,
                self._outgoing,
                acceptance.contexts,
                acceptance.maximum_pdu_bytes,
            )
        return Loop(
            self._sock,
            acceptance.contexts,
            providers,
            self._control.closing,
            maximum_pdu_bytes=acceptance.maximum_pdu_bytes,
            outgoing=self._outgoing,
        )

    def _served(self, loop: Loop) -> End:
        try:
            return loop.run()
        except Exception:  # noqa: BLE001 - a bug in it ends this association only
            _log.exception("association_failed")
            return End.PROTOCOL_ERROR
        finally:
            if self._outgoing is not None:
                self._outgoing.close()

    def _handshake_failed(self, failure: HandshakeFailed) -> None:
        """Note a failed handshake, except of a silent connection, as health checks make them."""
        if failure.advice is not None and self.account.unheard is None:
            self.account.unheard = UnreportedRefusal("tls_failed", None, failure.advice)

    def _end(self, last: bytes) -> None:
        """Free the place and pass on the row before the peer gets the last PDU."""
        with contextlib.ExitStack() as ending:
            ending.callback(self._control.pending.leave, self, self.account.peer_address)
            ending.callback(self._sock.close)
            self._control.leave(self)
            self._write_row()
            if self.account.is_established:
                self._control.pending.enter(self, self.account.peer_address)
            say_last(self._sock, last, memoryview(bytearray(_LAST_WORD_BYTES)))

    def _write_row(self) -> None:
        account = self.account
        if (outcome := account.outcome(is_released=account.abort_reason == End.RELEASED)) is None:
            return
        if account.is_too_slow:
            _log.warning(
                "sender_too_slow",
                advice=(
                    "GET /api/v1/associations names it; receive.minimum_bytes_per_second is the"
                    " limit"
                ),
            )
        telemetry.ASSOCIATIONS.labels(outcome=TOO_SLOW if account.is_too_slow else outcome).inc()
        account.show(outcome)
        account.say_discarded()
        self._control.accounts.put(account.record(outcome, time.time()))

    def look(self) -> None:
        """Abort a slow peer; called at intervals."""
        if (loop := self._loop) is not None and self._dripping.is_found(
            self._sock, loop.whole_messages
        ):
            self.account.slowness_advice = self._dripping.advice
            loop.give_up()

    def drop(self) -> None:
        """Close the connection without an association, because others need its place."""
        if not self.account.is_requested:
            self.account.unheard = TOO_MANY_CONNECTIONS
        self.cut()

    def close_if_idle(self) -> None:
        """Abort between two messages, never inside one; called at the end of the process."""
        if self._loop is not None:
            self._loop.wake_if_idle()
        elif not self.account.is_requested:
            self.cut()

    def cut(self) -> None:
        """End the connection at once; its thread notices."""
        with contextlib.suppress(OSError):
            shut_down(self._sock, socket.SHUT_RDWR)


def _silent(seconds: float) -> UnreportedRefusal:
    advice = (
        f"It asked for no association within {seconds:g} s (receive.acse_timeout_seconds): see what"
        " connects from there."
    )
    return UnreportedRefusal("dropped", "no_request", advice)


def _of_another_version(request: Request) -> AssociationRejection | None:
    """Return the rejection of another protocol version (PS3.8 9.3.2).

    Version 1 is bit 0, the only bit that is tested.
    """
    if request.protocol_version & 1:
        return None
    return AssociationRejection(
        1,
        2,
        2,
        "protocol_version_not_supported",
        "It speaks another version of the DICOM upper layer: correct the sender.",
    )


def _limit_silence(sock: socket.socket, seconds: float) -> None:
    """Set the kernel's time-outs, which apply to compiled code as well.

    Under TLS they are Python's: with the kernel's, OpenSSL would only try again.
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(seconds)
        return
    sock.settimeout(None)
    limit = struct.pack("ll", max(1, int(seconds)), 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
