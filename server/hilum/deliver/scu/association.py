"""Associations as a Storage SCU: negotiation, and C-STORE of bytes from disk or memory, unchanged.

The message exchange is our own, on one blocking socket. A pynetdicom association looks at its
socket a thousand times a second from two threads. That costs an idle dispatcher 7 % of a core
(docs/decisions/deliver-without-threads.md).
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, Final

from pydicom.uid import UID

from hilum.deliver.client import UnknownOutcome
from hilum.deliver.connection import ConnectionLost
from hilum.deliver.scu import command, negotiation
from hilum.deliver.scu.connection import SocketReader, pdvs
from hilum.deliver.scu.message import Message, message_before
from hilum.deliver.scu.negotiation import AssociateRejection, ProposedContext
from hilum.deliver.scu.statuses import check_status
from hilum.dicom import command_set, pdu
from hilum.dicom.associate import Malformed
from hilum.dicom.pdu import fragments, p_data
from hilum.dicom.rejections import rejection_text
from hilum.dicom.tls_client import Tls, secure
from hilum.errors import Refused, Retry

Contexts = Sequence[tuple[str, str]]
TakeEvent = Callable[[Mapping[int, bytes], str, bytes], tuple[int, str]]
"""Takes the elements of an N-EVENT-REPORT-RQ, its Transfer Syntax and its encoded data set.

Returns the status of the response and its Error Comment."""

_LARGEST_PDU_BYTES: Final = 131_072  # our own maximum; DCMTK takes no larger ones
_LEAST_PDU_BYTES: Final = 128  # a smaller value is taken for a mistake of the peer
_LAST_MESSAGE_ID: Final = 65_535
_RELEASE_SECONDS: Final = 5.0


class Unreachable(Retry):
    """No program accepts connections there."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The receiver of an association, and the time limit for each message."""

    host: str
    port: int
    called_ae_title: str
    calling_ae_title: str
    timeout_seconds: float
    tls: Tls | None = None

    def __str__(self) -> str:
        """Return AET@host:port, as `hilum send --to` takes it."""
        return f"{self.called_ae_title}@{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A data set to send, with a stream that stands at its first byte.

    Its length is even (PS3.5 7.1.1).
    """

    sop_class_uid: str
    sop_instance_uid: str
    transfer_syntax_uid: str
    data_set: BinaryIO
    size: int


class ScuAssociation:
    """An established association, for one thread at a time.

    It ends with the first Unknown or Retry that it raises.
    """

    def __init__(
        self,
        peer: Peer,
        wire: SocketReader,
        contexts: tuple[ProposedContext, ...],
        maximum_pdu_bytes: int,
    ) -> None:
        self.peer = peer
        self.contexts = contexts
        self._wire: SocketReader | None = wire
        self._room = (
            max(_LEAST_PDU_BYTES, min(maximum_pdu_bytes or _LARGEST_PDU_BYTES, _LARGEST_PDU_BYTES))
            - pdu.ITEM.size
            & ~1
        )
        self._message_id = 0

    @property
    def is_established(self) -> bool:
        """Whether it may be used: the receiver has not released or aborted it."""
        if self._wire is not None and self._wire.has_spoken:
            self._hear_the_end(self._wire)
        return self._wire is not None

    @property
    def accepted(self) -> tuple[ProposedContext, ...]:
        """The contexts in which objects may be sent, in the order of the proposal; at least one."""
        return tuple(context for context in self.contexts if context.is_accepted)

    def context(
        self, sop_class_uid: str, transfer_syntax_uid: str | None = None
    ) -> ProposedContext | None:
        """The accepted context of a SOP Class, in this Transfer Syntax or in any."""
        fits = (
            item
            for item in self.contexts
            if item.is_accepted and item.sop_class_uid == sop_class_uid
        )
        return next(
            (item for item in fits if transfer_syntax_uid in (None, item.transfer_syntax_uid)), None
        )

    def store(self, outgoing: OutgoingMessage) -> None:
        """Return when the receiver has stored the object.

        Raises Retry, Unknown or Refused; OSError when the stream cannot be read.
        """
        check_status(self.c_store(outgoing).status, str(self.peer))

    def c_store(self, outgoing: OutgoingMessage) -> command.Response:
        """Send a C-STORE and return the receiver's response (PS3.7 9.1.1).

        Raises Refused without a presentation context, Unknown without a response; OSError when the
        stream cannot be read.
        """
        context = self.context(outgoing.sop_class_uid, outgoing.transfer_syntax_uid)
        if context is None:
            raise Refused(
                "sop_class_refused", f"{self.peer} accepted no presentation context for this object"
            )
        request = command.store_request(
            self._next_id(), outgoing.sop_class_uid, outgoing.sop_instance_uid
        )
        fragments = _fragments(outgoing, self._room)
        try:
            return self._ask(context.context_id, command_set.C_STORE_RQ, request, fragments)
        except ConnectionLost as error:
            raise UnknownOutcome(
                f"{self.peer} gave no answer ({error}); the same bytes are sent again"
            ) from error
        except OSError:
            self.abort()  # an object that is half sent can only be aborted
            raise

    def echo(self) -> int | None:
        """Send a C-ECHO (PS3.4 Annex A) and return its status; None: no response.

        Verification must have been accepted.
        """
        context = self.context("1.2.840.10008.1.1")
        assert context is not None, "ask only where Verification was accepted"
        try:
            return self._exchange(
                context.context_id,
                command_set.C_ECHO_RQ,
                command.echo_request(self._next_id()),
                iter(()),
            )
        except ConnectionLost:
            return None

    def event_report(
        self, context: ProposedContext, command_of: Callable[[int], bytes], information: bytes
    ) -> int | None:
        """Send an N-EVENT-REPORT (PS3.7 10.1.1) in an accepted context and return its status.

        None: no response. `command_of` returns the command set with the given Message ID.
        """
        try:
            return self._exchange(
                context.context_id,
                command_set.N_EVENT_REPORT_RQ,
                command_of(self._next_id()),
                fragments(information, self._room),
            )
        except ConnectionLost:
            return None

    def request_commitment(
        self, context: ProposedContext, information: bytes, take: TakeEvent
    ) -> command.Response:
        """Send a request for storage commitment and return its response (PS3.4 J.3.2).

        Reports that come before the response go to `take`; the time limit is for all of them.
        Raises UnknownOutcome.
        """
        request = command.commitment_request(self._next_id())
        wire = self._wire
        assert wire is not None, "ask only once, on a new association"
        data_set = fragments(information, self._room)
        try:
            wire.send(_message(context.context_id, request, data_set, self._room))
            answer = self._answer_after_events(wire, take)
            return command.response_of(answer, command_set.N_ACTION_RQ, self._message_id)
        except (ConnectionLost, command.NotTheAnswer) as error:
            self.abort()
            raise UnknownOutcome(f"{self.peer} gave no answer ({error})") from error

    def _answer_after_events(self, wire: SocketReader, take: TakeEvent) -> bytes:
        """Return the first command set that is no event. Raises ConnectionLost."""
        seconds = self.peer.timeout_seconds
        deadline = time.monotonic() + seconds
        while (message := message_before(wire, deadline)) is not None:
            if not message.is_event:
                return bytes(message.command)
            self._answer_event(wire, message, take)
        raise ConnectionLost(f"no answer within {seconds:g} s")

    def await_event(
        self, seconds: float, take: TakeEvent, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Return when one N-EVENT-REPORT was taken, or the time or the association is over."""
        if self._wire is None:
            return
        try:
            message = message_before(self._wire, time.monotonic() + seconds, is_over)
            if message is not None and message.is_event:
                self._answer_event(self._wire, message, take)
        except ConnectionLost:
            self._drop()

    def _answer_event(self, wire: SocketReader, message: Message, take: TakeEvent) -> None:
        syntaxes = {item.context_id: item.transfer_syntax_uid for item in self.accepted}
        if (syntax := syntaxes.get(message.context_id)) is None:
            raise ConnectionLost("it reports in a presentation context that it did not accept")
        status, comment = take(message.elements, syntax, bytes(message.data_set))
        response = command.event_response(message.elements, status, comment)
        wire.send(_message(message.context_id, response, iter(()), self._room))

    def release(self) -> None:
        """Release the association (PS3.8 7.2); wait only briefly for a receiver that has gone."""
        if self._wire is None:
            return
        with contextlib.suppress(ConnectionLost):
            self._wire.send([pdu.RELEASE])
            while (kind := self._wire.receive(_RELEASE_SECONDS)[0]) not in (
                pdu.RELEASE_RP,
                pdu.ABORT,
            ):
                if kind == pdu.RELEASE_RQ:  # both at once (PS3.8 9.2, AR-8 and AR-9)
                    self._wire.send([pdu.RELEASED])
        self._drop()

    def abort(self) -> None:
        """Abort the association.

        A response may still be on its way. It must not be taken for the response to the next
        document.
        """
        if self._wire is not None:
            with contextlib.suppress(ConnectionLost):
                self._wire.send([pdu.user_abort()])
            self._drop()

    def _next_id(self) -> int:
        self._message_id = self._message_id % _LAST_MESSAGE_ID + 1
        return self._message_id

    def _exchange(
        self, context_id: int, request: int, command_set: bytes, data_set: Iterator[bytes]
    ) -> int:
        """Send one message and return the status of its response.

        Raises ConnectionLost, and then the association is over.
        """
        return self._ask(context_id, request, command_set, data_set).status

    def _ask(
        self, context_id: int, request: int, command_set: bytes, data_set: Iterator[bytes]
    ) -> command.Response:
        """Send one message and return its response.

        Raises ConnectionLost, and then the association is over.
        """
        if self._wire is None:
            raise ConnectionLost("the association is over")
        try:
            self._wire.send(_message(context_id, command_set, data_set, self._room))
            return command.response_of(_response(self._wire), request, self._message_id)
        except (ConnectionLost, command.NotTheAnswer) as error:
            self.abort()
            raise ConnectionLost(str(error)) from error

    def _hear_the_end(self, wire: SocketReader) -> None:
        """Read the PDU that ends an idle association; a release gets its response (PS3.8 7.2.2).

        A receiver sends on an idle association only to end it.
        """
        with contextlib.suppress(ConnectionLost):
            if wire.receive(_RELEASE_SECONDS)[0] == pdu.RELEASE_RQ:
                wire.send([pdu.RELEASED])
        self._drop()

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _message(
    context_id: int, command_set: bytes, data_set: Iterator[bytes], room: int
) -> Iterator[bytes]:
    yield from p_data(context_id, fragments(command_set, room), is_command=True)
    first = next(data_set, None)
    if first is not None:
        yield from p_data(context_id, chain([first], data_set), is_command=False)


def _fragments(outgoing: OutgoingMessage, room: int) -> Iterator[bytes]:
    """Return the data set in fragments of one PDU.

    Raises OSError where the file has become shorter meanwhile.
    """
    left = outgoing.size
    while left > 0:
        fragment = outgoing.data_set.read(min(room, left))
        if not fragment:
            raise OSError(f"the file has become {left} bytes shorter while it was sent")
        left -= len(fragment)
        yield fragment


def _response(wire: SocketReader) -> bytes:
    """Return the command set of the next message. Raises ConnectionLost."""
    found = b""
    while True:
        kind, whole = wire.receive()
        if kind != pdu.P_DATA_TF:
            raise ConnectionLost(
                "it aborted the association" if kind == pdu.ABORT else "it released the association"
            )
        for fragment in pdvs(whole):
            found += fragment.content if fragment.is_command else b""
            if fragment.is_command and fragment.is_last:
                return found


def associate(peer: Peer, contexts: Contexts, scp_of: Sequence[str] = ()) -> ScuAssociation:
    """Return an established association that accepts at least one of the contexts.

    A context is (SOP Class UID, Transfer Syntax UID). `scp_of`: SOP Classes of which we are the
    SCP; we are the SCU of the others (PS3.7 D.3.3.4).

    Raises Retry (an outage) when there is no response or the association is rejected, Refused when
    no context is accepted.
    """
    wire = SocketReader(_connected(peer), peer.timeout_seconds)
    try:
        wire.send(
            [negotiation.request(peer.calling_ae_title, peer.called_ae_title, contexts, scp_of)]
        )
        answered, maximum_pdu_bytes = _answer(*wire.receive(), peer, contexts)
    except ConnectionLost as error:
        wire.close()
        raise _nobody(
            peer, str(error), tls="" if peer.tls else ", does it want TLS (tls, or --tls)"
        ) from error
    except Retry:
        wire.close()
        raise
    association = ScuAssociation(peer, wire, answered, maximum_pdu_bytes)
    if not any(context.is_accepted for context in answered):
        association.release()
        raise refusal(association, answered[0].sop_class_uid)
    return association


def _connected(peer: Peer) -> socket.socket:
    try:
        plain = socket.create_connection((peer.host, peer.port), peer.timeout_seconds)
    except OSError as error:
        raise _nobody(peer, error.strerror or "no answer in time", kind=Unreachable) from error
    # TCP_NODELAY: a C-STORE ends in a small packet, which Nagle's algorithm holds back for 40 ms.
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if peer.tls is None else secure(plain, peer.tls, str(peer))


def _answer(
    kind: int, whole: bytes, peer: Peer, contexts: Contexts
) -> tuple[tuple[ProposedContext, ...], int]:
    try:
        if kind == pdu.ASSOCIATE_AC:
            return negotiation.accepted(whole, contexts)
        if kind == pdu.ASSOCIATE_RJ:
            detail = _rejection(negotiation.rejection(whole), peer)
            raise Retry(f"{peer} rejected the association: {detail}", is_outage=True)
    except Malformed as error:  # it is reachable and speaks DICOM: no outage
        name = "A-ASSOCIATE-AC" if kind == pdu.ASSOCIATE_AC else "A-ASSOCIATE-RJ"
        raise Retry(
            f"{peer} answered with an {name} that cannot be read ({error}); ask its vendor"
        ) from error
    raise ConnectionLost(
        "it aborted the association"
        if kind == pdu.ABORT
        else "it answers with something that is no DICOM"
    )


def _nobody(peer: Peer, what: str, tls: str = "", kind: type[Retry] = Retry) -> Retry:
    advice = f"is it running, are host and port right, is a firewall between{tls}?"
    return kind(f"no DICOM answer from {peer.host}:{peer.port} ({what}); {advice}", is_outage=True)


def refusal(association: ScuAssociation, sop_class_uid: str) -> Refused:
    """Return the Refused of a SOP Class without an accepted context, with the remedy.

    It is the most frequent refusal of a PACS. Result 4 is about the Transfer Syntax (PS3.8 Table
    9-18).
    """
    peer = association.peer
    rejected = [item for item in association.contexts if not item.is_accepted]
    context = next((item for item in rejected if item.sop_class_uid == sop_class_uid), None)
    what = f"{UID(sop_class_uid).name} ({sop_class_uid})"
    what += (
        f" in {UID(context.transfer_syntax_uid).name}"
        if context is not None and context.result == 4
        else ""
    )
    others = len({item.sop_class_uid for item in rejected} - {sop_class_uid})
    what += (
        f", nor {others} other class{'' if others == 1 else 'es'} that would do" if others else ""
    )
    advice = (
        f"enable this SOP Class for our AE Title {peer.calling_ae_title} there, then requeue the"
        " delivery"
    )
    return Refused("sop_class_refused", f"{peer} does not accept {what}: {advice}")


def _rejection(answer: AssociateRejection, peer: Peer) -> str:
    text = rejection_text(
        answer.source, answer.reason, calling=peer.calling_ae_title, called=peer.called_ae_title
    )
    return f"({answer.result},{answer.source},{answer.reason}) {text}"
