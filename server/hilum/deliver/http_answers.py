"""Documents sent by HTTP: each answer, and each failure, as the outcome of a delivery.

A status means the same for all kinds of destination. The body of an answer may name a patient, so
errors hold statuses and our own words alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from hilum.deliver.client import Probe, ReceiverBusy, UnknownOutcome
from hilum.errors import Refused, Retry
from hilum.settings import HttpPeer
from hilum.web.answers import HttpAnswer
from hilum.web.client import BODY_BYTES, HttpClient, HttpRequest
from hilum.web.limits import TimeLimit
from hilum.web.problems import HttpError

LONGEST_RETRY_AFTER_SECONDS: Final = 900.0
"""A receiver that asks for more is asked again after this."""
# Of the whole request: a receiver may take single bytes, or give them, for as long as it likes.
_WHOLE: Final = 4
_ADDRESS: Final = "address_refused"
_DOCUMENT: Final = "document_refused"


@dataclass(frozen=True, slots=True)
class _Final:
    """The reason and the advice of a status that does not pass by itself."""

    reason: str
    advice: str


_FINAL: Final = {
    400: _Final(_DOCUMENT, "it finds the request malformed; see its log"),
    403: _Final("not_authorised", "our account may not store there; have it allowed"),
    404: _Final(_ADDRESS, "it has nothing at this address; correct `url`"),
    405: _Final(_ADDRESS, "it takes no such request at this address; correct `url`"),
    406: _Final(_ADDRESS, "it cannot answer in the form that we read; see its log"),
    409: _Final(_DOCUMENT, "it finds a conflict with what it holds; see its log"),
    410: _Final(_ADDRESS, "it has closed this address for good; correct `url`"),
    413: _Final(_DOCUMENT, "the document is too large for it; raise its limit of size"),
    415: _Final(_DOCUMENT, "it does not take this media type; have it enabled there"),
    422: _Final(_DOCUMENT, "it understands the document and refuses it; see its log"),
    501: _Final(_ADDRESS, "it does not support this request; correct `url`"),
}
_ANY_FINAL: Final = _Final(_DOCUMENT, "it refuses the request; see its log")
_AWAY: Final = {
    401: "it wants other credentials: correct user, token_file or oauth_client_id",
    408: "it waited too long for us",
    425: "it does not take requests yet",
    429: "it is asked too often",
    502: "the server behind its gateway does not answer",
    503: "it is overloaded or down",
    504: "its gateway waited too long for the server",
}
# One document may be the cause of these, so the others do not wait for it.
_BUSY: Final = {507: "its disk is full"}
_ANY_BUSY: Final = "it failed; its log may say why"


class HttpSender:
    """Sends requests to the server of a destination, for one thread.

    Raises Retry, UnknownOutcome, ReceiverBusy or Refused; see `DestinationClient.deliver`.
    """

    def __init__(self, peer: HttpPeer) -> None:
        self._peer = peer
        self._client = HttpClient(peer)

    def send(
        self,
        request: HttpRequest,
        also: Collection[int] = (),
        limit_seconds: float | None = None,
        maximum_bytes: int = BODY_BYTES,
    ) -> HttpAnswer:
        """Return the answer of a success, or of a status in `also`, which the caller reads.

        `limit_seconds`: for the whole request, where it is less than the settings allow.
        """
        where = place_of(request.url)
        allowed = _WHOLE * self._peer.timeout_seconds
        seconds = allowed if limit_seconds is None else min(allowed, limit_seconds)
        limit = TimeLimit(seconds, setting="timeout_seconds allows it")
        try:
            answer = self._client.exchange(request, limit, maximum_bytes)
        except HttpError as error:
            raise _failure(error, where) from error
        if not answer.is_success and answer.status not in also:
            raise status_error(answer, where)
        return answer

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._client.close()


def place_of(url: str) -> str:
    """Return scheme and host of an address: its path may be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def status_error(answer: HttpAnswer, where: str) -> Retry | Refused:
    """Return the error for a status that is no success."""
    status = answer.status
    said = f"{where} answered HTTP {status}"
    if 300 <= status < 400:
        return Refused(
            _ADDRESS,
            f"{said}: it redirects{_target(answer.location)}, and documents follow no redirect;"
            " give the right address in the settings, then requeue the delivery",
        )
    wait = pause_of(answer)
    if status in _AWAY:
        return Retry(f"{said}: {_AWAY[status]}", after_seconds=wait, is_outage=True)
    found = _FINAL.get(status)
    if found is None and status >= 500:
        text = f"{said}: {_BUSY.get(status, _ANY_BUSY)}"
        return ReceiverBusy(text, after_seconds=wait, is_outage=True)
    final = found or _ANY_FINAL
    return Refused(final.reason, f"{said}: {final.advice}, then requeue the delivery")


def pause_of(answer: HttpAnswer) -> float | None:
    """Return how long the receiver asks to wait, within reason."""
    if answer.retry_after is None:
        return None
    return min(answer.retry_after, LONGEST_RETRY_AFTER_SECONDS)


def meanings() -> Iterator[tuple[str, str, str]]:
    """Yield each meaning of a status: the status, the outcome of the document, and the advice."""
    yield "2xx", "its kind reads the answer", ""
    yield "3xx", _ADDRESS, "give the right address in the settings"
    for status, final in _FINAL.items():
        yield str(status), final.reason, final.advice
    yield "another 4xx", _ANY_FINAL.reason, _ANY_FINAL.advice
    for status, advice in _AWAY.items():
        yield str(status), "waits", advice
    for status, advice in _BUSY.items():
        yield str(status), "waits; others go on", advice
    yield "another 5xx", "waits; others go on", _ANY_BUSY


def probe_of(name: str, address: str, ask: Callable[[], str]) -> Probe:
    """Return a probe by a question that leaves nothing behind. `ask` returns the findings.

    Its Retry or Refused is the failure.
    """
    advice = f"`hilum destinations probe {name}` asks again; results wait or die until then."
    try:
        detail = ask()
    except (Retry, Refused) as error:
        return Probe(name, address, is_ok=False, detail=error.detail, advice=advice)
    if address.startswith("http://"):
        detail += "; http:// is not encrypted"
    return Probe(name, address, is_ok=True, detail=detail, advice=advice)


def _failure(error: HttpError, where: str) -> Retry:
    """Return the error for a request without a usable answer."""
    if error.was_sent and not error.is_outage:
        return UnknownOutcome(
            f"{where} gave no usable answer ({error.detail}); the same bytes are sent again"
        )
    return Retry(f"{where}: {error.detail}", is_outage=True)


def _target(location: str) -> str:
    """Return the server to which a redirect leads, in words; empty: it says none."""
    try:
        parts = urlsplit(location)
        is_shown = bool(parts.hostname) and parts.netloc.isascii() and parts.netloc.isprintable()
    except ValueError:
        return ""
    return f" to {parts.scheme}://{parts.hostname}" if is_shown else ""
