"""The HTTP client: a kept connection that ends, and headers that cannot be sent."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from hilum.settings import HttpPeer
from hilum.web.client import HttpClient, HttpRequest
from hilum.web.limits import TimeLimit
from hilum.web.problems import HttpError
from tests.support.retrieve.web_server import Received, Reply, WebServer

KEPT = Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", keep=True)
ENDED = Reply(b"")


class Ending:
    """Answers `before` requests, then ends one connection without an answer, then answers."""

    def __init__(self, before: int) -> None:
        self._before = before
        self.ports: list[int] = []
        self._asked = 0

    def __call__(self, _request: Received) -> Reply:
        self._asked += 1
        return ENDED if self._asked == self._before + 1 else KEPT


def posted(client: HttpClient, url: str) -> bytes:
    request = HttpRequest(url, "POST", {"Content-Type": "text/plain"}, b"document")
    return client.exchange(request, TimeLimit(20.0)).body


def test_a_request_on_a_kept_connection_that_ends_is_sent_once_more() -> None:
    with (
        WebServer(Ending(before=1)) as server,
        closing(HttpClient(HttpPeer(url=server.url))) as client,
    ):
        assert [posted(client, server.url) for _ in range(2)] == [b"ok", b"ok"]

    assert len(server.received) == 3


def test_a_request_on_a_new_connection_that_ends_is_not_repeated() -> None:
    with (
        WebServer(Ending(before=0)) as server,
        closing(HttpClient(HttpPeer(url=server.url))) as client,
    ):
        with pytest.raises(HttpError, match="ended before the answer") as caught:
            posted(client, server.url)
        assert posted(client, server.url) == b"ok"

    assert caught.value.was_sent
    assert len(server.received) == 2


def test_a_request_that_reached_nothing_was_not_sent() -> None:
    with (
        closing(HttpClient(HttpPeer(url="http://127.0.0.1:1"))) as client,
        pytest.raises(HttpError) as caught,
    ):
        posted(client, "http://127.0.0.1:1")

    assert (caught.value.was_sent, caught.value.is_outage) == (False, True)


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "a\0b"])
def test_a_header_with_a_line_end_is_not_sent(value: str) -> None:
    with (
        WebServer(lambda _: KEPT) as server,
        closing(HttpClient(HttpPeer(url=server.url))) as client,
        pytest.raises(HttpError) as caught,
    ):
        client.exchange(HttpRequest(server.url, headers={"X-Name": value}), TimeLimit(20.0))

    assert server.received == []
    assert not caught.value.was_sent


def test_a_token_endpoint_that_hangs_ends_with_the_time_of_the_request(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n", encoding="utf-8")
    goes_on = threading.Event()
    begun = Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", hold=goes_on)
    with WebServer(lambda _: begun) as tokens, WebServer(lambda _: KEPT) as server:
        peer = HttpPeer(
            url=server.url,
            oauth_url=tokens.url,
            oauth_client_id="hilum",
            oauth_secret_file=secret,
            timeout_seconds=20.0,
        )
        request = HttpRequest(server.url, "POST", body=b"document")
        with closing(HttpClient(peer)) as client, pytest.raises(HttpError) as caught:
            client.exchange(request, TimeLimit(0.5))
        goes_on.set()

    assert "not done within its 0.5 s" in caught.value.detail
    assert not caught.value.was_sent
    assert (len(tokens.received), server.received) == (1, [])
