"""Signed webhooks: what the reference library verifies, and answers that no real receiver gives."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hilum.deliver import Probe, ReceiverBusy, UnknownOutcome
from hilum.deliver.circuit_breaker import CircuitBreaker
from hilum.deliver.webhook_signature import message_id, signed_headers
from hilum.domain import JSON, SR, Document
from hilum.errors import ReceiverGone, Refused, Retry
from hilum.settings import Pipeline, WebhookDestination
from testing.webhook_receiver import PATH, SECRET, section_of
from tests.support.deliver.webhook_receiver import SENT, client_at, webhook_receiver
from tests.support.peers.peers import free_port
from tests.support.retrieve.web_server import Received, Reply, WebServer, chunked, reply

PATIENT = "Miller^Ann"
OTHER = "whsec_" + base64.b64encode(bytes(range(64))).decode()


def port_of(server: WebServer) -> int:
    return int(server.url.rpartition(":")[2])


def outcome(script: Reply | Callable[[Received], Reply], folder: Path, **settings: Any) -> Any:
    """The error of a delivery, or None."""
    answers = script if callable(script) else lambda _: script
    with WebServer(answers) as server, client_at(port_of(server), folder, **settings) as client:
        return error_of(lambda: client.deliver(SENT))


def error_of(deliver: Callable[[], None]) -> Exception | None:
    try:
        deliver()
    except (Retry, Refused) as error:
        return error
    return None


def probed(answer: Reply, folder: Path, **settings: Any) -> tuple[Probe, WebServer]:
    """A probe of a server that gives this answer."""
    with (
        WebServer(lambda _: answer) as server,
        client_at(port_of(server), folder, **settings) as client,
    ):
        return client.probe(5.0), server


# ---- the reference library verifies


def test_the_stored_bytes_arrive_once_and_verified(tmp_path: Path) -> None:
    with webhook_receiver(tmp_path / "program") as receiver:
        with client_at(receiver.port, tmp_path) as client:
            client.deliver(SENT)
            client.deliver(SENT)
        (identity,) = receiver.held()
        assert receiver.body(identity) == SENT.content
        assert identity == message_id(SENT.content)


@pytest.mark.parametrize("known", [SECRET, OTHER], ids=["former", "new"])
def test_while_a_secret_is_replaced_a_receiver_may_know_either(known: str, tmp_path: Path) -> None:
    with webhook_receiver(tmp_path / "program", secret=known) as receiver:
        with client_at(receiver.port, tmp_path, OTHER, SECRET) as client:
            client.deliver(SENT)
        assert len(receiver.held()) == 1


def test_another_secret_is_an_outage_that_ends_when_the_file_is_replaced(tmp_path: Path) -> None:
    with webhook_receiver(tmp_path / "program") as receiver:
        with client_at(receiver.port, tmp_path, OTHER) as client:
            with pytest.raises(Retry, match=r"HTTP 401.*compare the secret") as caught:
                client.deliver(SENT)
            assert receiver.held() == []
            (tmp_path / "secret-1").write_text(SECRET, encoding="ascii")
            client.deliver(SENT)
        assert len(receiver.held()) == 1
    assert caught.value.is_outage


def test_a_time_that_is_six_minutes_wrong_is_not_accepted(tmp_path: Path) -> None:
    with (
        webhook_receiver(tmp_path / "program") as receiver,
        client_at(receiver.port, tmp_path, clock=lambda: time.time() - 360) as client,
        pytest.raises(Retry, match="and their clocks"),
    ):
        client.deliver(SENT)


# ---- the request


def test_a_repeated_delivery_has_the_same_id_and_body_and_its_own_time(tmp_path: Path) -> None:
    times = iter([1_790_000_000.9, 1_790_000_007.0])
    answers = iter([reply(503), reply(204)])
    with (
        WebServer(lambda _: next(answers)) as server,
        client_at(port_of(server), tmp_path, clock=lambda: next(times)) as client,
    ):
        with pytest.raises(Retry):
            client.deliver(SENT)
        client.deliver(SENT)
    first, second = server.received
    assert (first.method, first.path) == ("POST", PATH)
    assert first.headers["content-type"] == "application/json"
    assert first.headers["content-length"] == str(len(SENT.content))
    assert first.body == second.body == SENT.content
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    stamps = [item.headers["webhook-timestamp"] for item in server.received]
    assert stamps == ["1790000000", "1790000007"]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]


@pytest.mark.parametrize(
    "content", [b"", b"\r\nX-Evil: 1\r\n\r\n", b"\x00\xff", b'{"study": "1.2\r\nHost: a"}']
)
def test_no_content_reaches_a_header(content: bytes) -> None:
    headers = signed_headers([bytes(24), bytes(64)], message_id(content), 1.9, content)
    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature"]
    assert re.fullmatch(r"msg_[0-9a-f]{64}", headers["webhook-id"])
    assert headers["webhook-timestamp"] == "1"
    signature = r"v1,[A-Za-z0-9+/]{43}="
    assert re.fullmatch(f"{signature} {signature}", headers["webhook-signature"])


def test_other_content_has_another_identity() -> None:
    assert message_id(b"{}") != message_id(b"{} ")


def test_json_goes_whole_and_an_object_is_refused_unsent(tmp_path: Path) -> None:
    result = Document(JSON.key, JSON.media_type, b'{"study": {}}')
    report = Document(SR.key, SR.media_type, b"DICM", "1.2", "1.2.3")
    with (
        WebServer(lambda _: reply(200)) as server,
        client_at(port_of(server), tmp_path) as client,
    ):
        client.deliver(result)
        with pytest.raises(Refused, match="not_json: sr is no JSON"):
            client.deliver(report)
    assert [request.body for request in server.received] == [result.content]


# ---- the answer


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_each_2xx_is_a_success_whatever_its_body(status: int, tmp_path: Path) -> None:
    body = b"" if status == 204 else b"<html>ok</html>"
    assert outcome(reply(status, body, {"Content-Type": "text/html"}), tmp_path) is None


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_it_slows_down_as_long_as_the_receiver_asks(status: int, tmp_path: Path) -> None:
    error = outcome(reply(status, headers={"Retry-After": "120"}), tmp_path)
    assert isinstance(error, Retry)
    assert (error.is_outage, error.after_seconds) == (True, 120.0)


@pytest.mark.parametrize("status", [500, 507])
def test_a_failure_of_its_own_holds_up_this_document_alone(status: int, tmp_path: Path) -> None:
    assert isinstance(outcome(reply(status), tmp_path), ReceiverBusy)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (301, "address_refused"),
        (308, "address_refused"),
        (400, "document_refused"),
        (403, "not_authorised"),
        (404, "address_refused"),
        (422, "document_refused"),
    ],
)
def test_what_cannot_pass_by_itself_is_a_refusal(status: int, reason: str, tmp_path: Path) -> None:
    error = outcome(reply(status, PATIENT.encode()), tmp_path)
    assert isinstance(error, Refused)
    assert error.reason == reason
    assert PATIENT not in error.detail


def test_a_redirect_is_not_followed_and_names_no_path(tmp_path: Path) -> None:
    with WebServer(lambda _: reply(200)) as other:
        there = f"{other.url}/secret-path"
        error = outcome(reply(307, headers={"Location": there}), tmp_path)
    assert other.received == []
    assert isinstance(error, Refused)
    assert "redirects to http://127.0.0.1" in error.detail
    assert "secret-path" not in error.detail
    assert PATH not in error.detail


def test_http_410_asks_for_a_pause_and_the_breaker_passes_it_on(tmp_path: Path) -> None:
    with WebServer(lambda _: reply(410)) as server, client_at(port_of(server), tmp_path) as client:
        breaker = CircuitBreaker("program", client, Pipeline(backoff_seconds=60.0))
        with pytest.raises(ReceiverGone, match="HTTP 410: it wants no more") as caught:
            breaker.deliver(SENT)
        with pytest.raises(Retry) as waiting:
            breaker.deliver(SENT)
    assert caught.value.is_outage
    assert not isinstance(waiting.value, ReceiverGone), "one pause is enough"
    assert len(server.received) == 1


@pytest.mark.parametrize(
    "script",
    [
        Reply(b""),
        Reply(b"HTTP/1.1 204"),
        Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
        chunked([b"half"], end=b""),
        reply(200, b"x" * (1 << 20) + b"x"),
        Reply(b"220 mail.example.org ESMTP\r\n"),
    ],
    ids=["nothing", "half a head", "half a body", "half a chunk", "too long", "no HTTP"],
)
def test_an_answer_that_is_not_whole_leaves_the_outcome_open(script: Reply, tmp_path: Path) -> None:
    assert isinstance(outcome(script, tmp_path), UnknownOutcome)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_receiver_that_hangs_leaves_the_outcome_open(head: bytes, tmp_path: Path) -> None:
    done = threading.Event()
    try:
        error = outcome(Reply(head, hold=done), tmp_path, timeout_seconds=0.3)
    finally:
        done.set()
    assert isinstance(error, UnknownOutcome)
    assert not error.is_outage


# ---- the secrets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_",
        "whsec_c2hvcnQ=",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS*",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2Lä",
    ],
)
def test_a_file_without_a_usable_secret_is_named_and_its_text_is_not(
    text: str, tmp_path: Path
) -> None:
    with client_at(free_port(), tmp_path) as client:
        (tmp_path / "secret-1").write_text(text, encoding="utf-8")
        error = error_of(lambda: client.deliver(SENT))
        probe = client.probe(5.0)
    assert isinstance(error, Retry)
    assert error.is_outage
    assert "secret-1" in error.detail
    assert (probe.is_ok, probe.detail) == (False, error.detail)
    secret = text.removeprefix("whsec_")
    assert not secret or secret not in error.detail


def test_a_missing_file_is_an_outage(tmp_path: Path) -> None:
    with client_at(free_port(), tmp_path) as client:
        (tmp_path / "secret-1").unlink()
        with pytest.raises(Retry, match="secret-1 cannot be read") as caught:
            client.deliver(SENT)
    assert caught.value.is_outage


@pytest.mark.parametrize("size", [24, 64])
def test_the_shortest_and_the_longest_secret_are_accepted(size: int, tmp_path: Path) -> None:
    secret = "whsec_" + base64.b64encode(bytes(range(size))).decode()
    with webhook_receiver(tmp_path / "program", secret=secret) as receiver:
        with client_at(receiver.port, tmp_path, secret) as client:
            client.deliver(SENT)
        assert len(receiver.held()) == 1


# ---- the probe and the settings


@pytest.mark.parametrize("status", [200, 204, 400, 401, 403, 404, 405, 501])
def test_a_probe_finds_a_server_that_takes_no_options(status: int, tmp_path: Path) -> None:
    found, server = probed(reply(status), tmp_path)
    assert found.is_ok
    assert f"HTTP {status} to OPTIONS" in found.detail
    (request,) = server.received
    assert (request.method, request.body) == ("OPTIONS", b"")
    assert not any(name.startswith("webhook-") for name in request.headers)


@pytest.mark.parametrize("status", [302, 410, 429, 500, 503])
def test_a_probe_says_what_would_keep_documents_away(status: int, tmp_path: Path) -> None:
    found, _ = probed(reply(status), tmp_path)
    assert not found.is_ok
    assert f"HTTP {status}" in found.detail


def test_a_probe_with_a_token_that_is_not_accepted_is_no_success(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc", encoding="ascii")
    found, server = probed(reply(401), tmp_path, token_file=token)
    assert not found.is_ok
    assert server.received[0].authorization == "Bearer abc"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"secret_files": []}, "at least 1"),
        ({"secret_files": ["a", "b", "c"]}, "at most 2"),
        ({"documents": ["sr"]}, "no JSON document; it takes json, notice"),
        ({"url": "https://user:pw@example.org/"}, "pattern"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    values = {**section_of(443, tmp_path), **change}
    with pytest.raises(ValidationError, match=said):
        WebhookDestination.model_validate(values)


def test_the_path_of_its_address_is_not_shown(tmp_path: Path) -> None:
    found = WebhookDestination.model_validate(section_of(443, tmp_path))
    assert found.address == "http://127.0.0.1:443"
    assert found.documents == ("notice",)
