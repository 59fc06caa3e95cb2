"""The protocols of the kinds of destinations, as far as a relay between both ends reads them.

Each is a series of requests, with one answer to each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from testing.network import wire

_PAGE: Final = b"<html><body>Please sign in.</body></html>"
PAGE: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(_PAGE) + _PAGE
)
"""What a gateway answers, or a web server where another protocol is spoken."""
_NOTHING: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_REFUSED: Final = b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 0\r\n\r\n"
_CANNOT_UNDERSTAND: Final = 0xC000  # PS3.4 Table B.2-1
_END_OF_HEAD: Final = b"\r\n"
_END_OF_FRAME: Final = b"\x1c\r"


class PeerEnded(Exception):
    """The connection ended before a whole message had come."""


@dataclass(frozen=True, slots=True)
class Held:
    """The identity of a document, and the digest of its content."""

    identity: str
    digest: str


@dataclass(frozen=True, slots=True)
class Request:
    """All bytes of a request. `document`: None where it holds none."""

    raw: bytes
    document: Held | None = None
    wants_answer: bool = True
    message_id: int = 0
    context_id: int = 0


class Dialect(Protocol):
    """Reads whole messages of a connection. Raises PeerEnded."""

    @property
    def is_receipt_by_status(self) -> bool:
        """Whether the status alone says that the document is there."""

    def empty(self, request: Request, /) -> bytes:
        """Return a positive answer without what makes it one."""

    def request(self, stream: BinaryIO) -> Request:
        """Read the next request."""

    def answer(self, stream: BinaryIO) -> bytes:
        """Read the answer to it."""

    def refusal(self, request: Request, /) -> bytes:
        """Return an answer that refuses a document for good."""


class Dimse:
    """C-STORE on an association (PS3.7 9.1.1)."""

    is_receipt_by_status = False

    def request(self, stream: BinaryIO) -> Request:
        """Read a command with its data set, or a PDU of the negotiation."""
        kind, raw = _pdu(stream)
        if kind != wire.P_DATA_TF:
            return Request(raw, wants_answer=kind != wire.ABORT)
        found = _Message()
        found.add(raw)
        while not found.is_whole:
            more = _pdu(stream)[1]
            found.add(more)
            raw += more
        return found.request(raw)

    def answer(self, stream: BinaryIO) -> bytes:
        """Read a response, or a PDU of the negotiation."""
        kind, raw = _pdu(stream)
        if kind == wire.P_DATA_TF:
            found = _Message()
            found.add(raw)
            while not found.is_whole:
                more = _pdu(stream)[1]
                found.add(more)
                raw += more
        return raw

    def empty(self, request: Request, /) -> bytes:
        """Return a C-STORE-RSP without a status."""
        return _store_response(request, {})

    def refusal(self, request: Request, /) -> bytes:
        """Return a C-STORE-RSP with the status *cannot understand*."""
        return _store_response(request, {wire.STATUS: _CANNOT_UNDERSTAND})


def _store_response(request: Request, more: Mapping[int, int]) -> bytes:
    elements = {
        wire.COMMAND_FIELD: wire.C_STORE_RSP,
        wire.RESPONDED_TO: request.message_id,
        wire.DATA_SET_TYPE: wire.NO_DATA_SET,
        **more,
    }
    return b"".join(wire.message(request.context_id, wire.command_set(elements), (), 0))


class _Message:
    """A DIMSE message that comes in PDUs."""

    def __init__(self) -> None:
        self._command = bytearray()
        self._data_set = bytearray()
        self._context_id = 0
        self.is_whole = False

    def add(self, p_data: bytes) -> None:
        """Add a P-DATA-TF PDU."""
        for context_id, is_command, is_last, content in wire.pdvs(p_data):
            self._context_id = context_id
            (self._command if is_command else self._data_set).extend(content)
            if is_last:
                self.is_whole = not is_command or not self._has_data_set

    def request(self, raw: bytes) -> Request:
        """Return it as a request of these bytes."""
        fields = wire.read_command_set(bytes(self._command))
        number = wire.number_in(fields, wire.MESSAGE_ID)
        document = None
        if wire.number_in(fields, wire.COMMAND_FIELD) == wire.C_STORE_RQ:
            uid = wire.text_in(fields, wire.AFFECTED_SOP_INSTANCE_UID)
            document = Held(uid, digest_of(bytes(self._data_set)))
        return Request(raw, document, message_id=number, context_id=self._context_id)

    @property
    def _has_data_set(self) -> bool:
        fields = wire.read_command_set(bytes(self._command))
        return wire.number_in(fields, wire.DATA_SET_TYPE) != wire.NO_DATA_SET


@dataclass(frozen=True, slots=True)
class Http:
    """POST of a document. `document_of`: the document of a request, from its fields and its body."""

    document_of: Callable[[Mapping[str, str], bytes], Held]
    is_receipt_by_status: bool = False

    def request(self, stream: BinaryIO) -> Request:
        """Read a request with its body."""
        head, fields = _head(stream)
        body = _exactly(stream, int(fields.get("content-length", 0)))
        is_post = head.startswith(b"POST ")
        return Request(head + body, self.document_of(fields, body) if is_post else None)

    def answer(self, stream: BinaryIO) -> bytes:
        """Read an answer with its body, which has a length or comes in chunks."""
        head, fields = _head(stream)
        if fields.get("transfer-encoding", "").lower() != "chunked":
            return head + _exactly(stream, int(fields.get("content-length", 0)))
        whole = head
        size = 1
        while size:
            line = _line(stream)
            size = int(line.partition(b";")[0], 16)
            whole += line + _exactly(stream, size + len(_END_OF_HEAD))
        return whole

    def empty(self, _request: Request, /) -> bytes:
        """Return 200 without a body."""
        return _NOTHING

    def refusal(self, _request: Request, /) -> bytes:
        """Return 422."""
        return _REFUSED


class Mllp:
    """HL7 v2 messages in frames."""

    is_receipt_by_status = False

    def request(self, stream: BinaryIO) -> Request:
        """Read a message."""
        raw = _frame(stream)
        content = raw[1 : -len(_END_OF_FRAME)]
        return Request(raw, Held(control_id_of(content), digest_of(content)))

    def answer(self, stream: BinaryIO) -> bytes:
        """Read an acknowledgement."""
        return _frame(stream)

    def empty(self, _request: Request, /) -> bytes:
        """Return AA for no message."""
        return _acknowledgement("AA", "")

    def refusal(self, request: Request, /) -> bytes:
        """Return AE for this message."""
        return _acknowledgement("AE", request.document.identity if request.document else "")


def control_id_of(content: bytes) -> str:
    """MSH-10 of a message."""
    return content.split(b"|", 10)[9].decode("ascii")


def digest_of(content: bytes) -> str:
    """Return its sha256."""
    return hashlib.sha256(content).hexdigest()


def _acknowledgement(code: str, control_id: str) -> bytes:
    header = "MSH|^~\\&|RIS|SITE|HILUM|SITE|20260101000000||ACK|1|P|2.5.1"
    return f"\x0b{header}\rMSA|{code}|{control_id}\r\x1c\r".encode("ascii")


def _pdu(stream: BinaryIO) -> tuple[int, bytes]:
    head = _exactly(stream, 6)
    return head[0], head + _exactly(stream, int.from_bytes(head[2:], "big"))


def _head(stream: BinaryIO) -> tuple[bytes, dict[str, str]]:
    """The first line and the fields of an HTTP message: their bytes, and the fields by name."""
    lines = [_line(stream)]
    while lines[-1] != _END_OF_HEAD:
        lines.append(_line(stream))
    pairs = (line.decode("latin-1").partition(":") for line in lines[1:-1])
    return b"".join(lines), {name.lower(): value.strip() for name, _, value in pairs}


def _frame(stream: BinaryIO) -> bytes:
    found = bytearray()
    while not found.endswith(_END_OF_FRAME):
        found += _exactly(stream, 1)
    return bytes(found)


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise PeerEnded
    return line


def _exactly(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise PeerEnded
    return content
