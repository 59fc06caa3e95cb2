"""A client of one HTTP server: kept connection, credentials, limits, and no redirect followed."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from hilum import __version__
from hilum.dicom.tls_client import Tls
from hilum.errors import Retry
from hilum.settings import HttpPeer
from hilum.web.answers import HttpAnswer, media_type_of, retry_after
from hilum.web.body import bounded
from hilum.web.credentials import credentials_of
from hilum.web.limits import TimeLimit
from hilum.web.problems import HttpError, transport_problem

BODY_BYTES: Final = 1 << 20
"""Of an answer that is read whole, if its reader says nothing else."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})  # RFC 9110 9.2.1
_CONNECTED: Final = (".connect_tcp.complete", ".start_tls.complete")  # of httpcore's trace
_BROKEN: Final = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `url`: whole and percent-encoded. `body`: sent with its length."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


class HttpClient:
    """Sends requests to one server over one connection, for one thread. Errors: HttpError.

    `clock`: seconds, for the life of tokens.
    """

    def __init__(self, peer: HttpPeer, clock: Callable[[], float] = time.monotonic) -> None:
        self._peer = peer
        self._client: httpx.Client | None = None
        self._credentials = credentials_of(peer, self._open_client, clock)
        self._connected: Any = None
        self._connected_for_token: Any = None
        self._is_kept = False
        self._was_sent = False

    def exchange(
        self, request: HttpRequest, limit: TimeLimit, maximum_bytes: int = BODY_BYTES
    ) -> HttpAnswer:
        """Return the answer of any status, whose body has at most so many bytes."""
        with self.answer(request, limit) as response:
            body = b"" if request.method == "HEAD" else bounded(response, maximum_bytes)
            return HttpAnswer(
                response.status_code,
                media_type_of(response),
                body,
                retry_after(response),
                response.headers.get("location", ""),
                response.headers.get("warning", ""),
            )

    @contextlib.contextmanager
    def answer(self, request: HttpRequest, limit: TimeLimit) -> Iterator[httpx.Response]:
        """Yield the answer, whose body is still to be read within the block.

        After an error the next request opens another connection, by the files of TLS as they are
        then: a renewed certificate needs no restart.
        """
        response: httpx.Response | None = None
        is_whole = False
        self._was_sent = False
        try:
            with limit.watch(self.interrupt):
                response = self._authorized(request, limit)
                yield response
            is_whole = True
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            problem = limit.problem() or transport_problem(error, has_begun=response is not None)
            problem.was_sent = self._was_sent
            raise problem from error
        except HttpError as error:
            problem = limit.problem() or error  # its end may be the cause
            problem.was_sent = self._was_sent
            raise problem from error.__cause__
        finally:
            if response is not None:
                response.close()
            if not is_whole:
                self.close()

    def interrupt(self) -> None:
        """End the connections from another thread, so that their reads end at once."""
        for stream in (self._connected, self._connected_for_token):
            connected = None if stream is None else stream.get_extra_info("socket")
            if isinstance(connected, socket.socket):
                with contextlib.suppress(OSError):  # it is closed already
                    # Not the method of an SSLSocket: that one changes its state beside the reader.
                    socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request opens another. May be called twice."""
        if self._client is not None:
            self._client.close()
        self._client = None
        self._connected = None

    def _authorized(self, request: HttpRequest, limit: TimeLimit) -> httpx.Response:
        """Return the answer; after a 401 ask once more, if there are other credentials."""
        response = self._sent(request, limit)
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return response
        self._was_sent = False  # a 401 says that nothing was done
        try:
            is_new = self._credentials.renew()
        except HttpError:
            response.close()
            raise
        if not is_new:
            return response
        response.close()
        return self._sent(request, limit)

    def _sent(self, request: HttpRequest, limit: TimeLimit) -> httpx.Response:
        """Send a request; once more, if the server closed a kept connection at that moment."""
        try:
            return self._sent_once(request, limit)
        except _BROKEN:
            if not self._is_kept and request.method not in _SAFE:
                raise
            return self._sent_once(request, limit)

    def _sent_once(self, request: HttpRequest, limit: TimeLimit) -> httpx.Response:
        limit.check()
        if self._client is None:
            self._client = self._open_client(request.url)
        self._is_kept = True
        headers = dict(request.headers)
        authorization = self._credentials.header()
        if authorization:
            headers["Authorization"] = authorization
        seconds = min(self._peer.timeout_seconds, limit.remaining)
        built = self._client.build_request(
            request.method,
            request.url,
            headers=headers,
            content=request.body,
            timeout=httpx.Timeout(seconds),
            extensions={"trace": self._note},
        )
        return self._client.send(built, stream=True)

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        """Note how far a request has come; httpx has no other way to it."""
        if event.endswith(_CONNECTED):
            self._connected = info.get("return_value")
            self._is_kept = False
        if event.endswith(".start_tls.started"):
            self._was_sent = False  # the request before was for a proxy, which connects us
        elif event == "http11.send_request_body.complete":
            self._was_sent = True

    def _note_token_request(self, request: httpx.Request) -> None:
        """Have `interrupt` end a request for a token, too. Others have their own notes."""

        def note(event: str, info: Mapping[str, Any]) -> None:
            if event.endswith(_CONNECTED):
                self._connected_for_token = info.get("return_value")

        request.extensions.setdefault("trace", note)

    def _open_client(self, url: str) -> httpx.Client:
        """Return a client. A proxy of the environment is used for https:// alone.

        It would read a request to http://, and see one to this machine leave it.
        """
        is_encrypted = urlsplit(url).scheme == "https"
        return httpx.Client(
            verify=self._tls() if is_encrypted else True,
            trust_env=is_encrypted,
            follow_redirects=False,
            timeout=httpx.Timeout(self._peer.timeout_seconds),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            headers={"User-Agent": f"Hilum/{__version__}", "Accept-Encoding": "identity"},
            event_hooks={"request": [self._note_token_request]},
        )

    def _tls(self) -> ssl.SSLContext:
        peer = self._peer
        try:
            return Tls(peer.ca_file, peer.certificate_file, peer.key_file, "").context()
        except Retry as error:
            names = ("ca_file", "certificate_file", "key_file")
            files = ", ".join(f"{name} {getattr(peer, name)}" for name in names)
            raise HttpError(
                f"one of {files} is not usable: {error.detail}", is_outage=True, is_final=True
            ) from error
