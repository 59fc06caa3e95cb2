"""A relay between a dispatcher and a real receiver, which does to answers as a trouble says.

The receiver gets whole documents, unless the trouble keeps them from it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, Final, Self

from load_tests.proof.destinations.dialects import Dialect, Held, PeerEnded, Request
from testing.serving import free_ports

_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: RST instead of FIN
_PIECES: Final = 5
_PIECE_SECONDS: Final = 0.1


class Exchange:
    """One document on its way: the request is there, and nothing has been done about it."""

    def __init__(
        self, request: Request, dialect: Dialect, client: socket.socket, receiver: socket.socket
    ) -> None:
        self.request = request
        self.dialect = dialect
        self._client = client
        self._receiver = receiver
        self._answers = receiver.makefile("rb")

    def forwarded(self) -> bytes:
        """Give the document to the receiver, and return its answer. Raises PeerEnded."""
        self._receiver.sendall(self.request.raw)
        return self.dialect.answer(self._answers)

    def forward_half(self) -> None:
        """Give the first half of the document to the receiver."""
        self._receiver.sendall(self.request.raw[: len(self.request.raw) // 2])

    def forwarded_slowly(self) -> bytes:
        """Give it to the receiver in pieces, and return the answer. Raises PeerEnded."""
        size = max(1, len(self.request.raw) // _PIECES + 1)
        for start in range(0, len(self.request.raw), size):
            time.sleep(_PIECE_SECONDS)
            self._receiver.sendall(self.request.raw[start : start + size])
        return self.dialect.answer(self._answers)

    def say(self, answer: bytes) -> None:
        """Send bytes to the dispatcher."""
        self._client.sendall(answer)

    def say_slowly(self, answer: bytes) -> None:
        """Send bytes to the dispatcher in pieces."""
        size = max(1, len(answer) // _PIECES + 1)
        for start in range(0, len(answer), size):
            time.sleep(_PIECE_SECONDS)
            self._client.sendall(answer[start : start + size])

    def wait_for_the_end(self, is_over: Callable[[], bool]) -> None:
        """Say nothing until the dispatcher closes the connection, or `is_over`."""
        while not is_over():
            readable, _, _ = select.select([self._client], [], [], 0.1)
            if readable and not self._client.recv(65_536):
                return

    def reset(self) -> None:
        """End the connection to the dispatcher by RST."""
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        raise PeerEnded


Handling = Callable[[Exchange], None]
"""What is done about a document; PeerEnded ends the connection."""


def pass_on(exchange: Exchange) -> None:
    """Do nothing to it."""
    exchange.say(exchange.forwarded())


class Relay:
    """Listens on a port of its own, within a `with` block.

    `sent`: each whole document that the dispatcher has sent. `well_since`: the end of its trouble,
    seconds since the epoch.
    """

    def __init__(self, dialect: Dialect, receiver_port: int) -> None:
        (self.port,) = free_ports(1)
        self.sent: list[Held] = []
        self.well_since = 0.0
        self._dialect = dialect
        self._receiver_port = receiver_port
        self._handling: Handling = pass_on
        self._left = 0
        self._troubled = 0
        self._lock = threading.Lock()
        self._listening: socket.socket | None = None

    def __enter__(self) -> Self:
        """Listen."""
        self.open()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Listen no more. Connections end with their peers."""
        self.shut()

    def trouble(self, handling: Handling, times: int) -> None:
        """Handle so many documents like this, and pass on all others."""
        with self._lock:
            self._handling = handling
            self._left = times
            self._troubled = times
            self.sent.clear()

    def heal(self) -> None:
        """Pass on all documents from now on."""
        with self._lock:
            self._left = 0
            self.well_since = time.time()

    @property
    def is_over(self) -> bool:
        """Whether so many documents have met the trouble, and are done with."""
        return self._troubled == 0

    def open(self) -> None:
        """Take connections."""
        listening = socket.create_server(("127.0.0.1", self.port))
        self._listening = listening
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def shut(self) -> None:
        """Refuse connections."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)  # it wakes `accept`
            self._listening.close()
        self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was shut
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(PeerEnded, OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with socket.create_connection(("127.0.0.1", self._receiver_port)) as receiver:
                receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._relay(client, client.makefile("rb"), receiver)

    def _relay(self, client: socket.socket, requests: BinaryIO, receiver: socket.socket) -> None:
        """Until one of both ends has nothing more to say."""
        while True:
            select.select([client, receiver], [], [])
            if select.select([receiver], [], [], 0)[0]:
                return  # it closes an idle connection
            request = self._dialect.request(requests)
            exchange = Exchange(request, self._dialect, client, receiver)
            if request.document is not None:
                self.sent.append(request.document)
                self._handle(exchange)
            elif request.wants_answer:
                pass_on(exchange)
            else:
                receiver.sendall(request.raw)

    def _handle(self, exchange: Exchange) -> None:
        with self._lock:
            is_met = self._left > 0
            self._left -= is_met
        if not is_met:
            pass_on(exchange)
            return
        try:
            self._handling(exchange)
        finally:
            with self._lock:
                self._troubled -= 1
                self.well_since = time.time()
