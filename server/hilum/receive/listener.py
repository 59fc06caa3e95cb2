"""The DICOM listener of one process: pynetdicom's server on a socket that the supervisor has bound.

Several processes accept from the one socket, so that a dying process takes no waiting connection with it (SO_REUSEPORT would).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from pynetdicom import AE, _config, evt
from pynetdicom.events import Event
from pynetdicom.sop_class import Verification
from pynetdicom.transport import RequestHandler, ThreadedAssociationServer

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME, telemetry
from hilum.receive import compiled
from hilum.receive.acceptor import Acceptor
from hilum.receive.account import Account
from hilum.receive.account_book import AccountBook
from hilum.receive.census import Seat
from hilum.receive.commitment_desk import Desk
from hilum.receive.custody import Custody
from hilum.receive.door import Door
from hilum.receive.indexing import indexing
from hilum.receive.policy import Policy
from hilum.receive.self_test import may_stream
from hilum.receive.threads import log_failures, start_thread
from hilum.receive.tls import HandshakeFailed, ServerTls, shake_hands
from hilum.receive.watermarks import Watermarks
from hilum.settings import Receive, Settings
from hilum.store.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.views import LedgerViews

_log = telemetry.logger("receive")

Address = tuple[str, int] | tuple[str, int, int, int]  # IPv4 or IPv6

_POLL_SECONDS = 1.0  # how late a request to stop may be noticed
_RETRY_SECONDS = 0.25
_SERVED_BETWEEN_COLLECTIONS = 64
_DRAIN_SECONDS = 10.0
_FLUSH_SECONDS = 8.0
_ACCOUNTS_SECONDS = 3.0


def serve_listener(
    settings: Settings,
    plain: socket.socket | None,
    ledger: Ledger,
    archive: Archive,
    stop: threading.Event,
    tls: socket.socket | None = None,
    seat: Seat | None = None,
    owner: str | None = None,
) -> None:
    """Receive on these listening sockets until `stop` is set, by a bug in the indexing, too; then finish what is in progress and return.

    What an earlier process of this name (`archive.process`) left behind is swept and indexed first. `owner`: who leases rows.
    """
    # Both are documented: no log of pynetdicom's own, which holds identifiers and costs a tenth of the time; our context in its threads.
    _config.LOG_HANDLER_LEVEL = "none"
    _config.PASS_CONTEXTVARS = True
    log_failures()
    accounts = AccountBook(ledger)
    accounts.start()
    try:
        with indexing(settings, ledger, archive, stop, _FLUSH_SECONDS) as reception:
            desk = Desk(settings, ledger, Custody(ledger, archive, settings.receive.commitment_wait_seconds), owner or archive.process)
            watermarks = Watermarks(settings.receive, archive, LedgerViews(settings.ledger_url))
            policy = Policy(settings.receive, settings.senders)
            is_streaming = may_stream(settings.receive)
            compiled.warn_without()
            door = Door(settings.receive, policy, reception, accounts, desk, watermarks.rejection, is_streaming, seat or Seat())
            _serve(list(_make_servers(settings.receive, plain, tls, door)), door, stop)
    finally:
        accounts.stop(_ACCOUNTS_SECONDS)


def _serve(servers: Sequence[SharedSocketServer], door: Door, stop: threading.Event) -> None:
    accepting = [start_thread("accept", server.serve_forever, _POLL_SECONDS) for server in servers]
    while not stop.wait(_POLL_SECONDS) and all(thread.is_alive() for thread in accepting):
        pass
    for server in servers:
        server.shutdown()
    _drain(door, servers)
    if not stop.is_set():
        raise RuntimeError("the accepting thread has ended")


def _make_servers(settings: Receive, plain: socket.socket | None, tls: socket.socket | None, door: Door) -> Iterator[SharedSocketServer]:
    for listening_socket, certificates in ((plain, None), (tls, ServerTls(settings) if tls is not None else None)):
        if listening_socket is not None:
            yield _make_server(settings, listening_socket, door, certificates)
            _log.info("listening", port=listening_socket.getsockname()[1], tls=certificates is not None)


def _make_server(settings: Receive, listening_socket: socket.socket, door: Door, certificates: ServerTls | None) -> SharedSocketServer:
    ae = AE()
    ae.implementation_class_uid = IMPLEMENTATION_CLASS_UID
    ae.implementation_version_name = IMPLEMENTATION_VERSION_NAME
    ae.maximum_pdu_size = settings.maximum_pdu_bytes
    ae.acse_timeout = settings.acse_timeout_seconds
    ae.dimse_timeout = settings.dimse_timeout_seconds
    ae.network_timeout = settings.network_timeout_seconds
    ae.maximum_associations = sys.maxsize  # `Door` counts: pynetdicom's count includes associations that are over
    ae.add_supported_context(Verification)  # each connection copies these; the real ones follow in EVT_REQUESTED
    server: SharedSocketServer = ae.make_server(
        listening_socket.getsockname()[:2],
        server_class=SharedSocketServer,
        request_handler=_Connection,
        listening_socket=listening_socket,
        door=door,
        certificates=certificates,
    )
    server.bind(evt.EVT_CONN_OPEN, server.opened)
    return server


def _drain(door: Door, servers: Sequence[SharedSocketServer]) -> None:
    """Let each message in progress come to its response, then abort; who takes too long is cut off."""
    door.closing.set()
    end = time.monotonic() + _DRAIN_SECONDS
    while (remaining := [acceptor for server in servers for acceptor in list(server.acceptors.values())]) and time.monotonic() < end:
        for acceptor in remaining:
            acceptor.close_if_idle()
        time.sleep(0.05)
    for acceptor in remaining:
        acceptor.cut()


class SharedSocketServer(ThreadedAssociationServer):  # type: ignore[misc] # pynetdicom ships no types
    """Accepts from a socket that is bound, listening, and not ours to close."""

    daemon_threads = True

    def __init__(
        self, *args: object, listening_socket: socket.socket, door: Door, certificates: ServerTls | None = None, **keywords: object
    ) -> None:
        self._listening_socket, self._certificates = listening_socket, certificates
        self._handshakes, self._count_lock = 0, threading.Lock()
        self.door = door
        self.acceptors: dict[Address, Acceptor] = {}
        self._served = 0
        super().__init__(*args, **keywords)

    def server_bind(self) -> None:
        """Instead of binding, take the socket. It must not block: another process may be faster at accepting."""
        super().server_close()  # the one that socketserver has just made
        self.socket = self._listening_socket
        self.socket.settimeout(0.0)
        self.server_address = self.socket.getsockname()

    def server_activate(self) -> None:
        """It listens already."""

    def shutdown(self) -> None:
        """Stop accepting. The socket stays open: pynetdicom would shut it down, and so in every process that has it."""
        socketserver.BaseServer.shutdown(self)

    def service_actions(self) -> None:
        """Collect what associations leave behind. pynetdicom does it at every turn of its loop, also when nobody has called."""
        if self._served >= _SERVED_BETWEEN_COLLECTIONS:
            self._served = 0
            gc.collect()

    def opened(self, event: Event) -> None:
        """EVT_CONN_OPEN: the association exists, and its thread has not started yet."""
        self.acceptors[event.address] = Acceptor(event.assoc, event.address[0], self.door)

    def process_request(self, request: socket.socket, client_address: Address) -> None:
        """A thread for each connection."""
        self._served += 1
        start_thread("connection", self.process_request_thread, request, client_address)

    def finish_request(self, request: socket.socket, client_address: Address) -> None:
        """On the connection's own thread: a peer that stalls in the TLS handshake holds nobody else up."""
        if self._certificates is None:
            super().finish_request(request, client_address)
            return
        began = time.time()
        with self._shaking_hands():
            try:
                secured = shake_hands(request, self._certificates.context(), self.door.settings.acse_timeout_seconds)
            except HandshakeFailed as failure:
                self._note_failed_handshake(client_address[0], began, failure)
                return
        with contextlib.closing(secured):
            # Its time-out is Python's: under TLS the kernel's would only make OpenSSL ask again.
            secured.settimeout(self.door.settings.network_timeout_seconds)
            super().finish_request(secured, client_address)

    def _note_failed_handshake(self, address: str, began: float, failure: HandshakeFailed) -> None:
        """A connection that said nothing, as health checks make them, has no row."""
        if failure.advice is not None:
            telemetry.ASSOCIATIONS.labels(outcome="tls_failed").inc()
            account = Account(address, started_at=began, handshake_advice=failure.advice)
            self.door.accounts.put(account.record("tls_failed", time.time()))

    @contextlib.contextmanager
    def _shaking_hands(self) -> Iterator[None]:
        with self._count_lock:
            self._handshakes += 1
        try:
            yield
        finally:
            with self._count_lock:
                self._handshakes -= 1

    def verify_request(self, _request: socket.socket, _client_address: Address) -> bool:
        """Bound the threads of connections that never ask for an association: beyond the bound they are closed unheard."""
        if len(self.acceptors) + self._handshakes < 2 * self.door.settings.maximum_associations + 16:
            return True
        telemetry.ASSOCIATIONS.labels(outcome="dropped").inc()
        return False

    def handle_error(self, _request: socket.socket, _client_address: Address) -> None:
        """A bug in a connection's thread ends that connection only. socketserver would print the peer's address."""
        _log.exception("connection_failed")

    def get_request(self) -> tuple[socket.socket, Address]:
        """A connection, set up for small answers and for peers that fall silent."""
        try:
            client, address = super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_RETRY_SECONDS)  # else the loop would spin until a descriptor is free
            raise
        client.settimeout(None)
        # Without it each response waits for the delayed acknowledgement of the one before, 40 ms.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._certificates is not None:
            return client, address
        # pynetdicom reads a whole PDU at once: a peer that stops in its middle would keep the thread for ever.
        limit = struct.pack("ll", max(1, int(self.door.settings.network_timeout_seconds)), 0)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        return client, address


class _Connection(RequestHandler):  # type: ignore[misc] # pynetdicom ships no types
    """The thread of one connection. It outlives the association, and so sees every way in which one can end."""

    def handle(self) -> None:
        super().handle()
        try:
            self.server.acceptors[self.client_address].attend()
        finally:
            self.server.acceptors.pop(self.client_address, None)
