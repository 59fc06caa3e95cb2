"""A receiver of HL7 that answers as a test says: the ways that no real one shows on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from hilum.deliver.hl7 import Hl7Client
from hilum.settings import Hl7Destination
from tests.support.hl7.parsed import read

START = b"\x0b"
END = b"\x1c\r"
Answer = Callable[[socket.socket, str], None]
"""It answers a message by its MSH-10; a connection that it closes ends."""


def message(code: str, control_id: str, error: str = "", text: str = "") -> bytes:
    """An acknowledgement without its frame."""
    segments = [
        "MSH|^~\\&|RIS||HILUM||20261126||ACK^R01^ACK|1|P|2.5.1",
        f"MSA|{code}|{control_id}|{text}",
    ]
    if error:
        segments.append(f"ERR||PID^1^5|{error}^{text}^HL70357|E")
    return "".join(f"{segment}\r" for segment in segments).encode()


def framed(content: bytes) -> bytes:
    """It in its frame."""
    return START + content + END


def acknowledging(*codes: str, error: str = "", text: str = "", control_id: str = "") -> Answer:
    """One acknowledgement for each code, all in one write. `control_id`: another message's."""

    def answer(connection: socket.socket, ours: str) -> None:
        acks = [framed(message(code, control_id or ours, error, text)) for code in codes]
        connection.sendall(b"".join(acks))

    return answer


def writing(make: Callable[[str], Sequence[bytes]], *, closes: bool = False) -> Answer:
    """These pieces, each in a packet of its own."""

    def answer(connection: socket.socket, control_id: str) -> None:
        for piece in make(control_id):
            connection.sendall(piece)
        if closes:
            connection.close()

    return answer


def silent(_connection: socket.socket, _control_id: str) -> None:
    """No answer."""


def closing(connection: socket.socket, _control_id: str) -> None:
    """The end of the connection instead of an answer."""
    connection.close()


class ScriptedReceiver:
    """Each message gets the next answer; after the last one all get that one.

    `received`: the messages as they came. `connections`: the number of those that brought one.
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.received: list[bytes] = []
        self.connections = 0
        self.bytes_received = 0

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def client(self, **settings: Any) -> Hl7Client:
        """A client of it."""
        given = {"host": "127.0.0.1", "port": self.port, "timeout_seconds": 60.0, **settings}
        return Hl7Client("ris", Hl7Destination(**given))

    def __enter__(self) -> Self:
        """Start it."""
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        for item in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()
        for thread in self._threads:
            thread.join()

    def _start(self, function: Callable[..., None], *given: Any) -> None:
        thread = threading.Thread(target=function, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._sockets.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        unread = b""
        is_first = True
        with contextlib.suppress(OSError):
            while more := connection.recv(65_536):
                unread += more
                self.bytes_received += len(more)
                while END in unread:
                    content, _, unread = unread.partition(END)
                    self.connections += is_first
                    is_first = False
                    self._take(connection, content.removeprefix(START))

    def _take(self, connection: socket.socket, content: bytes) -> None:
        self.received.append(content)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        answer(connection, str(read(content, "latin-1").segment("MSH")[10]))
