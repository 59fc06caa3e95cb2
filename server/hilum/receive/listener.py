"""The DICOM listener of one process, on sockets that the supervisor has bound.

Several processes accept from the one socket, so that a dying process loses no waiting connection
(with SO_REUSEPORT it would).
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from hilum.dicom import pdu
from hilum.observability import telemetry
from hilum.receive.association.acceptor import Acceptor
from hilum.receive.association.admission import AdmissionControl
from hilum.receive.association.counter import CounterSlot
from hilum.receive.association.pending_connections import PendingConnections
from hilum.receive.association.tls import ServerTls
from hilum.receive.commitment.reporter import CommitmentReporter
from hilum.receive.commitment.safekeeping import Safekeeping
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.receive.indexing.indexer import Seen, unseen
from hilum.receive.policy.association_policy import AssociationRejection, Policy
from hilum.receive.policy.association_record import TOO_MANY_CONNECTIONS, AssociationRecorder
from hilum.receive.policy.record_writer import AssociationRecordWriter
from hilum.receive.policy.watermarks import Watermarks
from hilum.receive.storage import compiled
from hilum.receive.storage.session import indexing
from hilum.receive.threads import log_failures, start_thread
from hilum.settings import Receive, Settings
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews

_log = telemetry.logger("receive")

_LOOK_SECONDS: Final = 1.0  # the delay in noticing a request to stop, or a slow sender
_RETRY_SECONDS: Final = 0.25
_DRAIN_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 8.0
_ACCOUNTS_SECONDS: Final = 3.0
# Connections without an association in this process: room for requests for all associations at
# once. More would be memory for unknown peers.
_MAXIMUM_PENDING = 128
_PENDING_BESIDE = 16
_LINGERING = 32
_LINGER_SECONDS = 2.0


def serve_listener(
    settings: Settings,
    plain: socket.socket | None,
    ledger: Ledger,
    archive: Archive,
    stop: threading.Event,
    tls: socket.socket | None = None,
    seat: CounterSlot | None = None,
    owner: str | None = None,
    seen: Seen = unseen,
) -> None:
    """Receive on these listening sockets until `stop` is set; then finish messages and return.

    A bug in the indexing sets `stop`, too. Files left by an earlier process of this name
    (`archive.process`) are swept and indexed first. `owner`: the owner of leased rows. `seen`:
    takes the images that are new.
    """
    log_failures()
    accounts = AssociationRecordWriter(ledger)
    accounts.start()
    try:
        with indexing(settings, ledger, archive, stop, _FLUSH_SECONDS, seen=seen) as reception:
            commitments = CommitmentReporter(
                settings,
                ledger,
                Safekeeping(ledger, archive, settings.receive.commitment_wait_seconds),
                owner or archive.process,
            )
            watermarks = Watermarks(settings.receive, archive, LedgerViews(settings.ledger_url))
            policy = Policy(settings.receive, settings.senders)
            compiled.warn_without()
            pending = PendingConnections(
                min(settings.receive.maximum_associations + _PENDING_BESIDE, _MAXIMUM_PENDING)
            )
            admission = AdmissionControl(
                settings.receive,
                policy,
                reception,
                accounts,
                commitments,
                TakenReports(settings, ledger),
                pending,
                watermarks.rejection,
                seat or CounterSlot(),
            )
            connections = Connections(admission)
            _serve(list(_ports(settings.receive, plain, tls, connections)), connections, stop)
    finally:
        accounts.stop(_ACCOUNTS_SECONDS)


def _serve(ports: Sequence[ListeningPort], connections: Connections, stop: threading.Event) -> None:
    accepting = [start_thread("accept", port.accept_connections) for port in ports]
    while not stop.wait(_LOOK_SECONDS) and all(thread.is_alive() for thread in accepting):
        connections.look()
    for port in ports:
        port.is_stopping.set()
    for thread in accepting:
        thread.join()
    connections.drain(_DRAIN_SECONDS)
    if not stop.is_set():
        raise RuntimeError("the accepting thread has ended")


def _ports(
    settings: Receive,
    plain: socket.socket | None,
    tls: socket.socket | None,
    connections: Connections,
) -> Iterator[ListeningPort]:
    for listening_socket, certificates in (
        (plain, None),
        (tls, ServerTls(settings) if tls is not None else None),
    ):
        if listening_socket is not None:
            yield ListeningPort(listening_socket, connections, certificates)
            _log.info(
                "listening", port=listening_socket.getsockname()[1], tls=certificates is not None
            )


class Connections:
    """All connections of this process, each with its thread."""

    def __init__(self, admission: AdmissionControl) -> None:
        self.admission = admission
        # Changed and copied by one operation each, which the interpreter does not divide.
        self._open: set[Acceptor] = set()
        self._limit = 2 * (admission.settings.maximum_associations + _MAXIMUM_PENDING)

    def begin(self, sock: socket.socket, address: str, certificates: ServerTls | None) -> None:
        """Serve a connection on a thread of its own.

        The threads of dropped connections take a moment to end, so their number is limited, too.
        """
        if len(self._open) >= self._limit:
            self._turn_away(sock, address)
            return
        acceptor = Acceptor(sock, address, self.admission, certificates)
        self._open.add(acceptor)
        self.admission.pending.enter(acceptor, address)
        try:
            start_thread("connection", self._run, acceptor)
        except RuntimeError:  # raised by threading: no thread is left
            self._forget(acceptor, address)
            self._turn_away(sock, address)

    def _turn_away(self, sock: socket.socket, address: str) -> None:
        sock.close()
        self._note(
            "dropped",
            AssociationRecorder(address, started_at=time.time(), unheard=TOO_MANY_CONNECTIONS),
        )

    def _run(self, acceptor: Acceptor) -> None:
        try:
            acceptor.run()
        finally:
            self._forget(acceptor, acceptor.account.peer_address)

    def _forget(self, acceptor: Acceptor, address: str) -> None:
        self._open.discard(acceptor)
        self.admission.pending.leave(acceptor, address)

    def refuse(self, address: str, rejection: AssociationRejection) -> None:
        """Write a row for a connection that was not even read."""
        self._note(
            "rejected", AssociationRecorder(address, started_at=time.time(), rejection=rejection)
        )

    def _note(self, outcome: str, account: AssociationRecorder) -> None:
        telemetry.ASSOCIATIONS.labels(outcome=outcome).inc()
        self.admission.accounts.put(account.record(outcome, time.time()))

    def look(self) -> None:
        """Look at each connection; called at intervals."""
        for acceptor in list(self._open):
            acceptor.look()

    def drain(self, seconds: float) -> None:
        """Let each message in progress reach its response, then abort; cut slow ones."""
        self.admission.closing.set()
        end = time.monotonic() + seconds
        while (remaining := list(self._open)) and time.monotonic() < end:
            for acceptor in remaining:
                acceptor.close_if_idle()
            time.sleep(0.05)
        for acceptor in remaining:
            acceptor.cut()


class ListeningPort:
    """The acceptor of connections from a listening socket.

    Other processes share the socket, so it is not closed here.
    """

    def __init__(
        self,
        listening_socket: socket.socket,
        connections: Connections,
        certificates: ServerTls | None,
    ) -> None:
        self._socket = listening_socket
        self._connections = connections
        self._certificates = certificates
        self._lingering = _Lingering()
        self.is_stopping = threading.Event()
        self._socket.settimeout(0.0)  # another process may be faster at accepting

    def accept_connections(self) -> None:
        """Accept connections until `is_stopping` is set."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self.is_stopping.is_set():
            if poll.poll(_LOOK_SECONDS * 1000):
                self._accept()
            self._lingering.close_old()

    def _accept(self) -> None:
        try:
            connection, address = self._socket.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # otherwise the loop would spin until a descriptor is free
                time.sleep(_RETRY_SECONDS)
            return
        try:
            self._take(connection, str(address[0]))
        except Exception:  # noqa: BLE001 - any error ends this connection only
            connection.close()
            _log.exception("connection_failed")

    def _take(self, connection: socket.socket, address: str) -> None:
        """Judge the address before a byte is read: one that may not connect costs no thread."""
        if (rejection := self._connections.admission.policy.stranger(address)) is not None:
            self._connections.refuse(address, rejection)
            self._refuse(connection, rejection)
            return
        # Without it each response waits for the delayed acknowledgement of the one before, 40 ms.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.begin(connection, address, self._certificates)

    def _refuse(self, connection: socket.socket, rejection: AssociationRejection) -> None:
        if self._certificates is not None:
            connection.close()
            return
        with contextlib.suppress(OSError):
            connection.settimeout(0.0)
            connection.send(pdu.rejection(rejection.result, rejection.source, rejection.diagnostic))
            connection.shutdown(socket.SHUT_WR)
        self._lingering.add(connection)


class _Lingering:
    """Connections that were rejected unread, kept for a moment.

    If they were closed at once, the request in transit would reset the response.
    """

    def __init__(self) -> None:
        self._sockets: deque[tuple[float, socket.socket]] = deque()

    def add(self, connection: socket.socket) -> None:
        """Add a connection; the oldest one is closed if there are too many."""
        if len(self._sockets) >= _LINGERING:
            self._sockets.popleft()[1].close()
        self._sockets.append((time.monotonic() + _LINGER_SECONDS, connection))

    def close_old(self) -> None:
        """Close connections whose time is over."""
        while self._sockets and self._sockets[0][0] < time.monotonic():
            self._sockets.popleft()[1].close()
