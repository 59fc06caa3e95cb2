"""An HTTP server that answers as a test says, byte for byte, and remembers its requests."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from testing.http_server import HttpServer

BOUNDARY = "b0undary"
RELATED = f'multipart/related; type="application/dicom"; boundary="{BOUNDARY}"'


@dataclass(frozen=True)
class Received:
    """A request as it came. `query`: the last value of each parameter."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    fields: tuple[str, ...] = ()

    @property
    def authorization(self) -> str:
        """Its credentials; empty: none."""
        return self.headers.get("authorization", "")


@dataclass(frozen=True)
class Reply:
    """The bytes of an answer. `hold`: then silence, until the event; else the connection closes.

    `keep`: the connection stays open for the next request.
    """

    raw: bytes
    hold: threading.Event | None = None
    keep: bool = False


Script = Callable[[Received], Reply]


def reply(
    status: int,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    length: int | None = None,
) -> Reply:
    """An answer with a Content-Length, which `length` may make wrong."""
    fields = {"Content-Length": str(len(body) if length is None else length), **(headers or {})}
    return Reply(_head(status, fields) + body)


def unbounded(body: bytes, content_type: str = RELATED, status: int = 200) -> Reply:
    """An answer that ends where the connection does."""
    return Reply(_head(status, {"Content-Type": content_type}) + body)


def chunked(
    pieces: Iterable[bytes], content_type: str = RELATED, end: bytes = b"0\r\n\r\n"
) -> Reply:
    """An answer in chunks; `end` empty: cut before the last one."""
    fields = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
    chunks = (f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return Reply(_head(200, fields) + b"".join(chunks) + end)


def dicom_json(items: list[Any], headers: Mapping[str, str] | None = None) -> Reply:
    """An answer of QIDO-RS."""
    fields = {"Content-Type": "application/dicom+json", **(headers or {})}
    return reply(200, json.dumps(items).encode(), fields)


def multipart(
    *parts: bytes, closing: bool = True, head: str = "Content-Type: application/dicom\r\n"
) -> bytes:
    """A body of multipart/related."""
    inner = b"".join(f"--{BOUNDARY}\r\n{head}\r\n".encode() + part + b"\r\n" for part in parts)
    return inner + (f"--{BOUNDARY}--\r\n".encode() if closing else b"")


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} word", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1")


@dataclass
class WebServer:
    """Answers each request by `script`, on a free port of this machine, within a `with` block."""

    script: Script
    received: list[Received] = field(default_factory=list)
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """Its root."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.port}"

    def paths(self) -> list[str]:
        """The paths of all requests, in order."""
        return [request.path for request in self.received]

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                parts = urlsplit(self.path)
                values = parse_qs(parts.query, keep_blank_values=True)
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                request = Received(
                    self.command,
                    parts.path,
                    {name: found[-1] for name, found in values.items()},
                    {name.lower(): value for name, value in self.headers.items()},
                    body,
                    tuple(values.get("includefield", ())),
                )
                outer.received.append(request)
                answer = outer.script(request)
                self.wfile.write(answer.raw)
                self.wfile.flush()
                if answer.hold is not None:
                    answer.hold.wait(60)
                self.close_connection = not answer.keep

            # Names of the library.
            do_GET = do_POST = do_PUT = do_HEAD = do_OPTIONS = _answer  # noqa: N815

            def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name
                """Print nothing."""

        self._server = HttpServer(Handler, self.tls)
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()


def element(vr: str, *values: Any) -> dict[str, Any]:
    """An element of DICOM JSON."""
    return {"vr": vr, "Value": list(values)}


def study(number: int) -> dict[str, Any]:
    """A study as QIDO-RS answers it."""
    return {"0020000D": element("UI", f"1.2.{number}")}


def page_of(items: list[Any], request: Received) -> list[Any]:
    """The part of a list that `limit` and `offset` ask for."""
    start = int(request.query.get("offset", "0"))
    return items[start : start + int(request.query["limit"])]
