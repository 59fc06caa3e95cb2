"""HTTP requests to one DICOMweb server: credentials, redirects, limits, and errors with advice."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx

from hilum import __version__
from hilum.retrieve.dicomweb.body import beginning
from hilum.retrieve.dicomweb.credentials import credentials_of
from hilum.retrieve.dicomweb.limits import TimeLimit
from hilum.retrieve.dicomweb.problems import server_word, status_problem, transport_problem
from hilum.retrieve.source import SourceError
from hilum.settings import DicomwebSource

_REDIRECTS: Final = 4
_WORD_BYTES: Final = 16 << 10
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One request. `path`: below the root, with its query, percent-encoded.

    `is_word_shown`: the text of an error may be shown; not so where the query names a patient or a
    study, for a server may name the patient.
    """

    path: str
    accept: str
    method: str = "GET"
    is_word_shown: bool = True


class WebSession:
    """Sends requests over one connection at a time, for one thread. Errors: SourceError."""

    def __init__(
        self, settings: DicomwebSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._root = settings.url.rstrip("/")
        self._client: httpx.Client | None = None
        self._credentials = credentials_of(settings, self._open_client, clock)
        self._connected: Any = None

    @contextlib.contextmanager
    def answer(self, request: WebRequest, limit: TimeLimit) -> Iterator[httpx.Response]:
        """Yield the answer, whose body is still to be read within the block."""
        response: httpx.Response | None = None
        try:
            with limit.watch(self.interrupt):
                response = self._authorized(request, limit)
                yield response
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            limit.check()
            if not isinstance(error, httpx.HTTPError):
                raise SourceError("its address or its answer is no HTTP; check `url`") from error
            raise transport_problem(error, has_begun=response is not None) from error
        finally:
            if response is not None:
                response.close()

    def problem(self, request: WebRequest, response: httpx.Response) -> SourceError:
        """Return the error for an answer that is no success; reads the beginning of its body."""
        word = ""
        if request.is_word_shown and request.method != "HEAD":
            with contextlib.suppress(httpx.HTTPError):
                media_type = response.headers.get("content-type", "")
                word = server_word(beginning(response, _WORD_BYTES), media_type)
        return status_problem(response, word)

    def interrupt(self) -> None:
        """End the connection from another thread, so that its read ends at once."""
        stream = self._connected
        connected = None if stream is None else stream.get_extra_info("socket")
        if isinstance(connected, socket.socket):
            with contextlib.suppress(OSError):  # it is closed already
                # Not the method of an SSLSocket: that one changes its state beside the reader.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._client is not None:
            self._client.close()
        self._client = None
        self._connected = None

    def _authorized(self, request: WebRequest, limit: TimeLimit) -> httpx.Response:
        """Return the answer; after a 401 ask once more, if there are other credentials."""
        response = self._followed(request, limit)
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return response
        try:
            is_new = self._credentials.renew()
        except SourceError:
            response.close()
            raise
        if not is_new:
            return response
        response.close()
        return self._followed(request, limit)

    def _followed(self, request: WebRequest, limit: TimeLimit) -> httpx.Response:
        """Return the answer behind redirects, none of which leaves the server."""
        url = self._root + request.path
        for _ in range(_REDIRECTS):
            response = self._sent(request, url, limit)
            if not response.has_redirect_location:
                return response
            response.close()
            url = _target(url, response.headers["location"])
        raise SourceError("it redirects in a circle; check `url` of this source")

    def _sent(self, request: WebRequest, url: str, limit: TimeLimit) -> httpx.Response:
        """Send a request; once more, if the server closed a kept connection at that moment."""
        try:
            return self._sent_once(request, url, limit)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            return self._sent_once(request, url, limit)

    def _sent_once(self, request: WebRequest, url: str, limit: TimeLimit) -> httpx.Response:
        limit.check()
        if self._client is None:
            self._client = self._open_client(url)
        headers = {"Accept": request.accept}
        authorization = self._credentials.header()
        if authorization:
            headers["Authorization"] = authorization
        seconds = min(self._settings.timeout_seconds, limit.remaining)
        built = self._client.build_request(
            request.method,
            url,
            headers=headers,
            timeout=httpx.Timeout(seconds),
            extensions={"trace": self._note_connection},
        )
        return self._client.send(built, stream=True)

    def _note_connection(self, event: str, info: Mapping[str, Any]) -> None:
        """Remember the latest connection, for `interrupt`; httpx has no other way to it."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._connected = info.get("return_value")

    def _open_client(self, url: str) -> httpx.Client:
        """Return a client. A proxy of the environment is used for https:// alone.

        It would read a request to http://, and see one to this machine leave it.
        """
        is_encrypted = urlsplit(url).scheme == "https"
        return httpx.Client(
            verify=self._tls(),
            trust_env=is_encrypted,
            follow_redirects=False,
            timeout=httpx.Timeout(self._settings.timeout_seconds),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            headers={"User-Agent": f"Hilum/{__version__}", "Accept-Encoding": "identity"},
        )

    def _tls(self) -> ssl.SSLContext:
        file = self._settings.ca_file
        try:
            return ssl.create_default_context(cafile=None if file is None else str(file))
        except (OSError, ssl.SSLError) as error:
            raise SourceError(
                f"ca_file {file} holds no certificates that can be read; correct it",
                is_outage=True,
                is_final=True,
            ) from error


def _target(url: str, location: str) -> str:
    """Return the target of a redirect. Raises SourceError for one to another server."""
    try:
        target = urljoin(url, location)
        origin = _origin(target)
    except ValueError as error:
        raise SourceError("it redirects to something that is no address") from error
    if origin != _origin(url):
        scheme, host, port = origin
        raise SourceError(
            f"it redirects to {scheme}://{host}:{port}, which does not get our request; if that is"
            " the right server, put it into `url`"
        )
    return target


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port (RFC 6454 4). Raises ValueError."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, -1)
