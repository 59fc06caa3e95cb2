"""Associations as a Storage SCU: negotiation, and one C-STORE of bytes that are on disk or in memory already.

pynetdicom is told to send files as they are. It would otherwise decode each data set and encode it anew, and the bytes that arrive
would not be those that were stored.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydicom.uid import UID
from pynetdicom import AE, _config, evt
from pynetdicom.presentation import build_context

from hilum.deliver.lane import Unknown
from hilum.deliver.statuses import check_status
from hilum.deliver.tls import Tls, why_no_handshake
from hilum.errors import Refused, Retry

_config.STORE_SEND_CHUNKED_DATASET = True
_config.LOG_HANDLER_LEVEL = "none"  # its handlers format every message for a log that nobody reads, patient data included

Contexts = Iterable[tuple[str, str]]

# PS3.8 Table 9-21: (source, reason) of an A-ASSOCIATE-RJ, and what a person can do about it.
_REJECTIONS: Final[Mapping[tuple[int, int], str]] = {
    (1, 2): "it does not know the Application Context; is this a DICOM port?",
    (1, 3): "it does not know our AE Title {calling}; register {calling} there",
    (1, 7): "it does not answer to the AE Title {called}; correct the AE Title of this destination",
    (2, 2): "it speaks another protocol version",
    (3, 1): "it is overloaded for the moment",
    (3, 2): "it has no association free; raise its limit for our AE Title",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side, and how long it may take for each message."""

    host: str
    port: int
    called_ae_title: str
    calling_ae_title: str
    timeout_seconds: float
    tls: Tls | None = None

    def __str__(self) -> str:
        """AET@host:port, as `hilum send --to` takes it."""
        return f"{self.called_ae_title}@{self.host}:{self.port}"


def associate(peer: Peer, contexts: Contexts) -> Any:  # noqa: ANN401 - pynetdicom ships no types
    """An established association that accepts at least one of the contexts (SOP Class UID, Transfer Syntax UID).

    Raises Retry (an outage) when nobody answers or the association is rejected, Refused when no context is accepted.
    """
    secured = (peer.tls.context(), peer.tls.server_name) if peer.tls else None
    application = AE(peer.calling_ae_title)
    application.connection_timeout = application.acse_timeout = application.dimse_timeout = peer.timeout_seconds
    application.network_timeout = None  # an idle association is the lane's to release
    proposed = [build_context(sop_class, syntax) for sop_class, syntax in contexts]
    handlers = [(evt.EVT_CONN_OPEN, _send_without_delay), (evt.EVT_DATA_SENT, _acknowledge_without_delay)]
    association = application.associate(peer.host, peer.port, proposed, peer.called_ae_title, evt_handlers=handlers, tls_args=secured)
    if not association.is_established:
        raise _why_not(association, peer)
    return association


def store(association: Any, file: Path, peer: Peer) -> None:  # noqa: ANN401 - pynetdicom ships no types
    """One C-STORE of a Part 10 file, byte for byte. Raises Retry, Unknown or Refused."""
    try:
        status = association.send_c_store(file)
    except ValueError as error:
        raise Refused("sop_class_refused", f"{peer} accepted no presentation context for this object") from error
    except RuntimeError as error:
        raise Retry(f"the association with {peer} ended before this object", is_outage=True) from error
    if "Status" not in status:
        raise Unknown(f"{peer} did not answer within {peer.timeout_seconds:g} s or broke off; the same bytes are sent again")
    check_status(int(status.Status), str(peer))


def _send_without_delay(event: Any) -> None:  # noqa: ANN401 - pynetdicom ships no types
    """TCP_NODELAY: a C-STORE ends in a small packet, which Nagle's algorithm holds back for 40 ms."""
    _transport(event).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _acknowledge_without_delay(event: Any) -> None:  # noqa: ANN401 - pynetdicom ships no types
    """TCP_QUICKACK, for each answer again because the kernel forgets it.

    DCMTK and Orthanc write the header of a response and its body apart, and their kernel holds the body back until ours acknowledges
    the header, which it would do after 40 ms: a document then takes 48 ms instead of 4.
    """
    _transport(event).setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _transport(event: Any) -> socket.socket:  # noqa: ANN401 - pynetdicom ships no types
    connection: socket.socket = event.assoc.dul.socket.socket
    return connection


def _why_not(association: Any, peer: Peer) -> Retry | Refused:  # noqa: ANN401 - pynetdicom ships no types
    answer = association.acceptor.primitive
    if association.is_rejected or (answer is not None and answer.result != 0):
        return Retry(f"{peer} rejected the association: {_rejection(association, peer)}", is_outage=True)
    if association.rejected_contexts:
        return refusal(association, association.rejected_contexts[0].abstract_syntax, peer)
    if peer.tls and (problem := why_no_handshake(peer.tls, peer.host, peer.port, peer.timeout_seconds)):
        return Retry(f"{peer}: {problem}", is_outage=True)
    advice = "is it running, are host and port right, is a firewall between?"
    return Retry(f"no DICOM answer from {peer.host}:{peer.port}; {advice}", is_outage=True)


def refusal(association: Any, sop_class_uid: str, peer: Peer) -> Refused:  # noqa: ANN401 - pynetdicom ships no types
    """The most frequent refusal of a PACS, with the remedy. Result 4 is about the Transfer Syntax (PS3.8 Table 9-18)."""
    context = next((item for item in association.rejected_contexts if item.abstract_syntax == sop_class_uid), None)
    what = f"{UID(sop_class_uid).name} ({sop_class_uid})"
    what += f" in {context.transfer_syntax[0].name}" if context is not None and context.result == 4 else ""
    others = len({item.abstract_syntax for item in association.rejected_contexts} - {sop_class_uid})
    what += f", nor {others} other class{'' if others == 1 else 'es'} that would do" if others else ""
    advice = f"enable this SOP Class for our AE Title {peer.calling_ae_title} there, then requeue the delivery"
    return Refused("sop_class_refused", f"{peer} does not accept {what}: {advice}")


def _rejection(association: Any, peer: Peer) -> str:  # noqa: ANN401 - pynetdicom ships no types
    answer = association.acceptor.primitive
    source, reason = answer.result_source, answer.diagnostic
    text = _REJECTIONS.get((source, reason), "it gave no reason that helps; see its log")
    return f"({answer.result},{source},{reason}) {text.format(calling=peer.calling_ae_title, called=peer.called_ae_title)}"
