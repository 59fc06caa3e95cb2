"""HTTP requests to one DICOMweb server: its redirects, and errors of the source with advice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

import httpx

from hilum.retrieve.dicomweb.problems import server_word, source_error, status_problem
from hilum.retrieve.source import SourceError
from hilum.settings import DicomwebSource
from hilum.web.body import beginning
from hilum.web.client import HttpClient, HttpRequest
from hilum.web.limits import TimeLimit
from hilum.web.problems import HttpError

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
        self._root = settings.url.rstrip("/")
        self._client = HttpClient(settings, clock)

    @contextlib.contextmanager
    def answer(self, request: WebRequest, limit: TimeLimit) -> Iterator[httpx.Response]:
        """Yield the answer, whose body is still to be read within the block.

        Follows redirects, none of which leaves the server.
        """
        url = self._root + request.path
        for _ in range(_REDIRECTS):
            with self._answer(request, url, limit) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                url = _target(url, response.headers["location"])
        raise SourceError("it redirects in a circle; check `url` of this source")

    def problem(self, request: WebRequest, response: httpx.Response) -> SourceError:
        """Return the error for an answer that is no success; reads the beginning of its body."""
        word = ""
        if request.is_word_shown and request.method != "HEAD":
            with contextlib.suppress(httpx.HTTPError):
                media_type = response.headers.get("content-type", "")
                word = server_word(beginning(response, _WORD_BYTES), media_type)
        return status_problem(response, word)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._client.close()

    @contextlib.contextmanager
    def _answer(self, request: WebRequest, url: str, limit: TimeLimit) -> Iterator[httpx.Response]:
        """Yield the answer to one request."""
        sent = HttpRequest(url, request.method, {"Accept": request.accept})
        try:
            with self._client.answer(sent, limit) as response:
                yield response
        except HttpError as error:
            raise source_error(error) from error


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
