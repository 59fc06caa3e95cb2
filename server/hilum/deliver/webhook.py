"""A program as destination: signed webhooks (Standard Webhooks 1.0.0), one document a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from hilum.deliver.client import Probe
from hilum.deliver.http_answers import HttpSender, place_of, probe_of
from hilum.deliver.webhook_signature import key_of, message_id, signed_headers
from hilum.domain import NOTICE, Document
from hilum.errors import ReceiverGone, Refused, Retry
from hilum.settings import WebhookDestination
from hilum.web.answers import HttpAnswer
from hilum.web.client import HttpRequest
from hilum.web.problems import HttpError

_UNAUTHORIZED: Final = 401
_GONE: Final = 410
_WITH_CREDENTIALS: Final = frozenset({_UNAUTHORIZED, 403})
# Answers to OPTIONS of a server that is there, and takes no OPTIONS or nothing unsigned.
_IS_THERE: Final = frozenset({400, 404, 405, 411, 415, 422, 501})


class WebhookClient:
    """The client to a receiver of webhooks: one kept connection, one document at a time.

    `clock`: seconds since the epoch; the receiver compares them with its own clock.
    """

    def __init__(
        self, name: str, destination: WebhookDestination, clock: Callable[[], float] = time.time
    ) -> None:
        self._name = name
        self._destination = destination
        self._where = place_of(destination.url)
        self._sender = HttpSender(destination)
        self._clock = clock

    def deliver(self, document: Document) -> None:
        """Return when the receiver has answered 2xx. See `DestinationClient.deliver`.

        Raises ReceiverGone for HTTP 410.
        """
        if document.media_type != NOTICE.media_type:
            raise Refused("not_json", f"{document.kind} is no JSON; send it elsewhere")
        answer = self._sender.send(self._request(document), also=(_UNAUTHORIZED, _GONE))
        if not answer.is_success:
            raise self._not_taken(answer)

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Ask for the options of the address (see `DestinationClient.probe`)."""
        return probe_of(self._name, self._destination.address, lambda: self._asked(limit_seconds))

    def close(self) -> None:
        """Close the connection."""
        self._sender.close()

    def _request(self, document: Document) -> HttpRequest:
        signed = signed_headers(
            self._keys(), message_id(document.content), self._clock(), document.content
        )
        headers = {"Content-Type": NOTICE.media_type, **signed}
        return HttpRequest(self._destination.url, "POST", headers, document.content)

    def _keys(self) -> list[bytes]:
        """Return the keys; read for each request, because a person may replace a file."""
        try:
            return [key_of(file) for file in self._destination.secret_files]
        except HttpError as error:
            raise Retry(error.detail, is_outage=True) from error

    def _not_taken(self, answer: HttpAnswer) -> Retry:
        said = f"{self._where} answered HTTP {answer.status}"
        if answer.status == _GONE:
            return ReceiverGone(f"{said}: it wants no more webhooks at this address")
        return Retry(
            f"{said}: it does not accept our signature or credentials; compare the secret of both"
            " ends, and their clocks",
            is_outage=True,
        )

    def _asked(self, limit_seconds: float | None) -> str:
        """Return the findings of a probe."""
        self._keys()
        has_credentials = self._destination.has_credentials
        also = _IS_THERE if has_credentials else _IS_THERE | _WITH_CREDENTIALS
        request = HttpRequest(self._destination.url, "OPTIONS")
        answer = self._sender.send(request, also, limit_seconds)
        return (
            f"it is there (HTTP {answer.status} to OPTIONS); the first document shows whether it"
            " accepts our signature"
        )
