"""Whether the handover works with the pynetdicom that is installed: tried on a connection to ourselves, before anybody else connects."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading

from pynetdicom import AE, evt
from pynetdicom.association import Association
from pynetdicom.events import Event
from pynetdicom.pdu import A_ASSOCIATE_AC
from pynetdicom.sop_class import Verification
from pynetdicom.transport import ThreadedAssociationServer

from hilum import IMPLEMENTATION_CLASS_UID, telemetry
from hilum.dimse import command_set, pdu
from hilum.receive.account import Account
from hilum.receive.handover import Handover
from hilum.receive.streamed_association import StreamedAssociation
from hilum.receive.streaming.provider import Incoming
from hilum.receive.threads import start_thread
from hilum.settings import Receive

_log = telemetry.logger("receive")

_SECONDS, _POLL_SECONDS = 5.0, 0.01
_EVERY_CONTEXT = 1


def may_stream(settings: Receive) -> bool:
    """Whether the streaming loop is wanted and works; with a warning where it does not."""
    if settings.listener != "streaming":
        return False
    if not (works := handover_works()):
        _log.warning(
            "slow_listener", advice="the streaming loop does not work here: received by pynetdicom alone, at several times the cost"
        )
    return works


def handover_works() -> bool:
    """An association with C-ECHO and A-RELEASE sent right behind its acceptance: a read too many would swallow them."""
    ae = AE()
    ae.add_supported_context(Verification)
    by_loop = threading.Event()
    handlers = [(evt.EVT_CONN_OPEN, _opened, [by_loop])]
    try:
        server = ae.make_server(("127.0.0.1", 0), evt_handlers=handlers, server_class=ThreadedAssociationServer)
    except OSError:
        return False
    start_thread("self-test", server.serve_forever, _POLL_SECONDS)
    try:
        return _is_served(server.server_address[1]) and by_loop.is_set()
    except OSError:
        return False
    finally:
        socketserver.BaseServer.shutdown(server)
        server.server_close()


def _is_served(port: int) -> bool:
    """Whether all that was sent is answered: P-DATA-TF, A-RELEASE-RP, and the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as peer:
        peer.sendall(_request())
        accepted = _next_pdu(peer)
        peer.sendall(b"".join(pdu.p_data(_EVERY_CONTEXT, [_echo()], is_command=True)) + pdu.RELEASE)
        return (accepted, _next_pdu(peer), _next_pdu(peer)) == (pdu.ASSOCIATE_AC, pdu.P_DATA_TF, pdu.RELEASE_RP)


def _next_pdu(peer: socket.socket) -> int:
    """Its type."""
    header = peer.recv(pdu.HEADER.size, socket.MSG_WAITALL)
    if len(header) < pdu.HEADER.size:
        return 0
    kind, length = pdu.HEADER.unpack(header)
    peer.recv(length, socket.MSG_WAITALL)
    return int(kind)


def _request() -> bytes:
    """An A-ASSOCIATE-RQ that proposes Verification in implicit little endian (PS3.8 9.3.2)."""
    syntaxes = _item(0x30, Verification.encode()) + _item(0x40, b"1.2.840.10008.1.2")
    user = _item(0x51, struct.pack(">L", 0)) + _item(0x52, IMPLEMENTATION_CLASS_UID.encode())
    variable = _item(0x10, b"1.2.840.10008.3.1.1.1") + _item(0x20, bytes((_EVERY_CONTEXT, 0, 0, 0)) + syntaxes) + _item(0x50, user)
    fixed = struct.pack(">H2x16s16s32x", 1, b"SELFTEST".ljust(16), b"SELFTEST".ljust(16))
    return pdu.HEADER.pack(0x01, len(fixed) + len(variable)) + fixed + variable


def _item(kind: int, content: bytes) -> bytes:
    return struct.pack(">BxH", kind, len(content)) + content


def _echo() -> bytes:
    """A C-ECHO-RQ (PS3.7 9.3.5.1)."""
    numbers = {
        command_set.COMMAND_FIELD: command_set.C_ECHO_RQ,
        command_set.MESSAGE_ID: 1,
        command_set.COMMAND_DATA_SET_TYPE: command_set.NO_DATA_SET,
    }
    values = {element: command_set.us(value) for element, value in numbers.items()}
    return command_set.encode({**values, command_set.AFFECTED_SOP_CLASS_UID: command_set.uid(Verification)})


class _NoStorage:
    """Nothing but Verification is accepted here."""

    def begin(self, *_: object) -> Incoming:
        raise NotImplementedError


def _opened(event: Event, by_loop: threading.Event) -> None:
    handover = Handover(event.assoc)
    event.assoc.bind(evt.EVT_PDU_SENT, lambda sent: handover.accepted() if isinstance(sent.pdu, A_ASSOCIATE_AC) else handover.failed())
    event.assoc.bind(evt.EVT_ESTABLISHED, lambda _event: _serve(event.assoc, handover, by_loop))


def _serve(assoc: Association, handover: Handover, by_loop: threading.Event) -> None:
    """As `Acceptor` does it."""
    if (sock := handover.take_over()) is None:
        return
    sock.settimeout(_SECONDS)
    by_loop.set()
    StreamedAssociation(assoc, sock, _NoStorage(), threading.Event()).run(Account("", 0.0))
