"""A small S3 server in this process, which does what a test says: it fails, hangs, or cuts answers.

It speaks what Hilum uses of the S3 API: PUT with If-None-Match and checksums, GET with ranges, HEAD,
DELETE, DeleteObjects, CopyObject and ListObjectsV2, in the style with the bucket in the path.
Signatures are not verified, but their key, region and date are.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from testing.serving import free_ports

Fault = Literal["slow_down", "full", "error", "lost", "cut", "hang", "stall", "trickle", "denied"]
ACCESS_KEY = "hilum-key"
SECRET_KEY = "hilum-secret-of-the-store"  # noqa: S105 - of a server that verifies none
REGION = "us-east-1"
BUCKET = "images"
_SKEW = timedelta(minutes=15)
_PAGE = 1000
_PIECES = 8
_PAUSE_SECONDS = 0.3
_SCOPE = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/s3/")
_REFUSALS: dict[str, tuple[int, str]] = {
    "slow_down": (503, "SlowDown"),
    "full": (507, "InsufficientStorage"),
    "error": (500, "InternalError"),
    "denied": (403, "AccessDenied"),
}


@dataclass
class ScriptedS3:
    """The server's state. `objects`: by bucket, then by key. `requests`: counts by method.

    `may_list`: these credentials have s3:ListBucket.
    """

    objects: dict[str, dict[str, bytes]] = field(default_factory=lambda: {BUCKET: {}})
    requests: Counter[str] = field(default_factory=Counter)
    log: list[tuple[str, str]] = field(default_factory=list)
    clock_ahead: timedelta = timedelta()
    may_list: bool = True
    region: str = REGION
    port: int = field(default_factory=lambda: free_ports(1)[0])
    _faults: list[tuple[str, Fault, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _released: threading.Event = field(default_factory=threading.Event)
    connections: set[socket.socket] = field(default_factory=set)
    _server: ThreadingHTTPServer | None = None

    @property
    def endpoint(self) -> str:
        """The value of `archive.endpoint`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def bucket(self) -> dict[str, bytes]:
        """The objects of the usual bucket."""
        return self.objects[BUCKET]

    def section(self, prefix: str = "hilum", **more: object) -> dict[str, object]:
        """Settings of an archive here, but for the credentials."""
        return {
            "url": f"s3://{BUCKET}/{prefix}",
            "endpoint": self.endpoint,
            "region": REGION,
            "timeout_seconds": 1.5,
            **more,
        }

    def fail(self, method: str, fault: Fault, times: int = 1_000_000) -> None:
        """Let the next requests of this method fail so."""
        with self.lock:
            self._faults.append((method, fault, times))

    def mend(self) -> None:
        """Answer all requests again, those that hang included."""
        with self.lock:
            self._faults.clear()
        self._released.set()

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._released.clear()
        owner = self

        class Handler(_Handler):
            s3 = owner

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Take no more connections, and close those that are open, as a killed server does."""
        if self._server is not None:
            self._released.set()
            self._server.shutdown()
            self._server.server_close()
            for connection in list(self.connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._server = None

    def wait_stopped(self) -> None:
        """Wait in a process that does nothing else."""
        threading.Event().wait()

    def fault_of(self, method: str) -> Fault | None:
        """Take one fault of this method from the script."""
        with self.lock:
            for place, (wanted, fault, times) in enumerate(self._faults):
                if wanted in (method, "*"):
                    self._faults[place] = (wanted, fault, times - 1)
                    if times <= 1:
                        del self._faults[place]
                    return fault
        return None

    def wait_released(self) -> None:
        """Hang until `mend` or `stop`."""
        self._released.wait(60)


class _Handler(BaseHTTPRequestHandler):
    s3: ScriptedS3
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self.s3.connections.add(self.connection)
        self.body = b""

    def finish(self) -> None:
        self.s3.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        self.query = parse_qs(parts.query, keep_blank_values=True)
        self.s3.requests[method] += 1
        self.s3.log.append((method, key))
        self.fault = self.s3.fault_of(method)
        if self.fault == "hang":
            self.s3.wait_released()
            self.close_connection = True
            return
        if self.fault in _REFUSALS:
            self._refuse(*_REFUSALS[self.fault])
            return
        if (problem := self._problem(bucket)) is not None:
            self._refuse(*problem)
            return
        getattr(self, f"_{method.lower()}")(self.s3.objects[bucket], key)

    def _problem(self, bucket: str) -> tuple[int, str] | None:
        """What is wrong with the credentials, the time, the region or the bucket."""
        scope = _SCOPE.search(self.headers.get("Authorization") or "")
        if scope is None or scope[1] != ACCESS_KEY:
            return (403, "InvalidAccessKeyId")
        if scope[2] != self.s3.region:
            return (400, "AuthorizationHeaderMalformed")
        sent = datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if abs(datetime.now(UTC) + self.s3.clock_ahead - sent) > _SKEW:
            return (403, "RequestTimeTooSkewed")
        return None if bucket in self.s3.objects else (404, "NoSuchBucket")

    def _put(self, objects: dict[str, bytes], key: str) -> None:
        if source := self.headers.get("x-amz-copy-source"):
            name = unquote(source).lstrip("/").partition("/")[2]
            if name not in objects:
                self._refuse(404, "NoSuchKey")
                return
            objects[key] = objects[name]
            self._xml("<CopyObjectResult><ETag>x</ETag></CopyObjectResult>")
            return
        if not self._is_whole():
            self._refuse(400, "BadDigest")
            return
        with self.s3.lock:
            if self.headers.get("If-None-Match") == "*" and key in objects:
                self._refuse(412, "PreconditionFailed")
                return
            objects[key] = self.body
        if self.fault == "lost":
            self.close_connection = True
            return
        self._answer(200, b"", {"ETag": '"x"'})

    def _is_whole(self) -> bool:
        digest = hashlib.sha256(self.body)
        signed = self.headers.get("x-amz-content-sha256")
        checksum = self.headers.get("x-amz-checksum-sha256")
        return signed == digest.hexdigest() and checksum in (
            None,
            base64.b64encode(digest.digest()).decode(),
        )

    def _get(self, objects: dict[str, bytes], key: str) -> None:
        if not self.s3.may_list and key not in objects:  # Amazon does not say what is missing
            self._refuse(403, "AccessDenied")
            return
        if not key:
            self._list(objects)
            return
        if key not in objects:
            self._refuse(404, "NoSuchKey")
            return
        content = objects[key]
        headers = {
            "ETag": '"x"',
            "Last-Modified": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        }
        if found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or ""):
            first, last = int(found[1]), min(int(found[2]), len(content) - 1)
            if first > last:
                self._refuse(416, "InvalidRange")
                return
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self._answer(206, content[first : last + 1], headers)
            return
        self._answer(200, content, headers)

    def _head(self, objects: dict[str, bytes], key: str) -> None:
        self._get(objects, key)

    def _delete(self, objects: dict[str, bytes], key: str) -> None:
        objects.pop(key, None)
        self._answer(204, b"", {})

    def _post(self, objects: dict[str, bytes], key: str) -> None:
        del key
        deleted = ""
        for name in re.findall(r"<Key>([^<]+)</Key>", self.body.decode()):
            objects.pop(unescape(name), None)
            deleted += f"<Deleted><Key>{name}</Key></Deleted>"
        self._xml(f"<DeleteResult>{deleted}</DeleteResult>")

    def _list(self, objects: dict[str, bytes]) -> None:
        prefix = self.query.get("prefix", [""])[0]
        after = self.query.get("continuation-token", [""])[0]
        names = sorted(name for name in objects if name.startswith(prefix) and name > after)
        page = names[:_PAGE]
        token = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
            if len(names) > _PAGE
            else ""
        )
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(objects[name])}</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in page
        )
        truncated = str(bool(token)).lower()
        self._xml(
            f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{token}{contents}"
            "</ListBucketResult>"
        )

    def _xml(self, body: str) -> None:
        self._answer(200, f'<?xml version="1.0"?>{body}'.encode(), {})

    def _refuse(self, status: int, code: str) -> None:
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'.encode()
        self._answer(status, body, {"Retry-After": "0"} if status == 503 else {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        if self.fault == "stall":
            self.wfile.write(body[: len(body) // 2])
            self.s3.wait_released()
        if self.fault == "trickle":
            self._trickle(body)
            return
        self.wfile.write(body)

    def _trickle(self, body: bytes) -> None:
        """Send the body in pieces, with pauses."""
        size = len(body) // _PIECES + 1
        for begin in range(0, len(body), size):
            time.sleep(_PAUSE_SECONDS)
            self.wfile.write(body[begin : begin + size])


@contextlib.contextmanager
def scripted_s3() -> Iterator[ScriptedS3]:
    """A server with one empty bucket."""
    server = ScriptedS3()
    server.start()
    try:
        yield server
    finally:
        server.mend()
        server.stop()
