"""Credentials: which header is sent when, and that no secret is shown or sent in clear."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hilum.domain import ExpectedImage
from hilum.retrieve.dicomweb.client import DicomwebClient
from hilum.retrieve.source import FetchRequest, Level, Query, SourceError
from hilum.settings import DicomwebSource
from tests.support.retrieve.kept_objects import KeptObjects
from tests.support.retrieve.sources import web_client
from tests.support.retrieve.web_server import (
    RELATED,
    Received,
    Reply,
    WebServer,
    dicom_json,
    multipart,
    reply,
    study,
)

QUERY = Query(Level.STUDY, {"StudyDate": "20240101"}, 10)
SECRET = "s3cret-w0rd"
TOKEN_SECONDS = 2.0


def secret_file(folder: Path, text: str = SECRET) -> Path:
    file = folder / "secret"
    file.write_text(text + "\n", encoding="utf-8")
    return file


def found(_: Received) -> Reply:
    return dicom_json([study(1)])


def test_basic_credentials_are_sent(tmp_path: Path) -> None:
    with (
        WebServer(found) as server,
        web_client(server.url, user="hilum", password_file=secret_file(tmp_path)) as client,
    ):
        client.find(QUERY)

    kind, _, value = server.received[0].authorization.partition(" ")
    assert (kind, base64.b64decode(value)) == ("Basic", f"hilum:{SECRET}".encode())


def test_without_credentials_no_header_is_sent() -> None:
    with WebServer(found) as server, web_client(server.url) as client:
        client.find(QUERY)

    assert server.received[0].authorization == ""


def test_a_bearer_token_is_read_anew_when_its_file_changes(tmp_path: Path) -> None:
    file = secret_file(tmp_path, "first")
    with WebServer(found) as server, web_client(server.url, token_file=file) as client:
        client.find(QUERY)
        file.write_text("second", encoding="utf-8")
        client.find(QUERY)

    assert [request.authorization for request in server.received] == [
        "Bearer first",
        "Bearer second",
    ]


def test_a_token_that_changes_after_a_401_is_tried_once(tmp_path: Path) -> None:
    file = secret_file(tmp_path, "old")

    def script(request: Received) -> Reply:
        if request.authorization == "Bearer old":
            file.write_text("new", encoding="utf-8")
            return reply(401)
        return found(request)

    with WebServer(script) as server, web_client(server.url, token_file=file) as client:
        assert len(client.find(QUERY).items) == 1

    assert len(server.received) == 2


def test_a_401_with_the_same_token_is_final(tmp_path: Path) -> None:
    with (
        WebServer(lambda _: reply(401)) as server,
        web_client(server.url, token_file=secret_file(tmp_path)) as client,
        pytest.raises(SourceError, match="HTTP 401") as caught,
    ):
        client.find(QUERY)

    assert caught.value.is_final
    assert len(server.received) == 1


class TokenServer:
    """An OAuth 2 server and a DICOMweb server in one. Tokens count up and live two seconds."""

    def __init__(self) -> None:
        self.tokens = 0
        self.accepted: set[str] = set()
        self.answer: Reply | None = None

    def __call__(self, request: Received) -> Reply:
        if request.path == "/token":
            return self.answer or self._token()
        if request.authorization.removeprefix("Bearer ") not in self.accepted:
            return reply(401)
        return found(request)

    def _token(self) -> Reply:
        self.tokens += 1
        self.accepted = {f"token-{self.tokens}"}
        answer = {
            "access_token": f"token-{self.tokens}",
            "token_type": "Bearer",
            "expires_in": TOKEN_SECONDS,
        }
        return reply(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})


class Clock:
    """Seconds as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class OAuth:
    """A client of a TokenServer."""

    def __init__(self, server: WebServer, script: TokenServer, folder: Path) -> None:
        self.server = server
        self.script = script
        self.clock = Clock()
        settings = DicomwebSource.model_validate(
            {
                "url": server.url,
                "oauth_url": f"{server.url}/token",
                "oauth_client_id": "hilum:1",
                "oauth_secret_file": secret_file(folder),
                "oauth_scope": "archive.read",
            }
        )
        self.client = DicomwebClient(settings, self.clock)

    def find(self) -> None:
        assert len(self.client.find(QUERY).items) == 1


@pytest.fixture
def oauth(tmp_path: Path) -> Iterator[OAuth]:
    script = TokenServer()
    with WebServer(script) as server:
        made = OAuth(server, script, tmp_path)
        yield made
        made.client.close()


def test_client_credentials_get_a_token(oauth: OAuth) -> None:
    oauth.find()

    request = oauth.server.received[0]
    assert request.method == "POST"
    assert request.body == b"grant_type=client_credentials&scope=archive.read"
    value = request.authorization.removeprefix("Basic ")
    assert base64.b64decode(value) == f"hilum%3A1:{SECRET}".encode()


def test_a_token_is_used_until_eighty_percent_of_its_life(oauth: OAuth) -> None:
    oauth.find()
    oauth.clock.now += 0.79 * TOKEN_SECONDS
    oauth.find()
    assert oauth.script.tokens == 1

    oauth.clock.now += 0.02 * TOKEN_SECONDS
    oauth.find()
    assert oauth.script.tokens == 2


def test_a_refused_token_is_replaced_once(oauth: OAuth) -> None:
    oauth.find()
    oauth.script.accepted = set()

    oauth.find()

    assert oauth.script.tokens == 2


def test_a_second_401_is_final(oauth: OAuth) -> None:
    oauth.script.answer = reply(
        200,
        b'{"access_token": "useless", "token_type": "bearer"}',
        {"Content-Type": "application/json"},
    )

    with pytest.raises(SourceError, match="HTTP 401") as caught:
        oauth.client.find(QUERY)

    assert caught.value.is_final
    assert oauth.server.paths() == ["/token", "/studies", "/token", "/studies"]


def test_a_living_token_outlasts_an_outage_of_its_server(oauth: OAuth) -> None:
    oauth.find()
    oauth.script.answer = reply(503)
    oauth.clock.now += 0.9 * TOKEN_SECONDS
    oauth.find()

    oauth.clock.now += 0.2 * TOKEN_SECONDS
    with pytest.raises(SourceError, match="token endpoint: HTTP 503") as caught:
        oauth.client.find(QUERY)

    assert caught.value.is_outage
    assert not caught.value.is_final


@pytest.mark.parametrize(
    ("status", "answer", "problem"),
    [
        (400, {"error": "invalid_client"}, r"refuses \(invalid_client\)"),
        (401, {"error": "Bearer " + SECRET}, r"refuses \(an unknown error\)"),
        (200, {"access_token": "a", "token_type": "mac"}, "gives no bearer token"),
        (200, {"token_type": "bearer"}, "gives no bearer token"),
        (
            200,
            {"access_token": "a", "token_type": "bearer", "expires_in": "x"},
            "expires_in is no number",
        ),
        (200, {"access_token": "a b\n", "token_type": "bearer"}, "holds blanks"),
        (200, ["a"], "no JSON object"),
    ],
)
def test_an_answer_without_a_usable_token_is_an_error(
    oauth: OAuth, status: int, answer: Any, problem: str
) -> None:
    oauth.script.answer = reply(status, json.dumps(answer).encode())

    with pytest.raises(SourceError, match=problem) as caught:
        oauth.client.find(QUERY)

    assert caught.value.is_outage
    assert SECRET not in caught.value.detail


def ways(folder: Path) -> dict[str, dict[str, Any]]:
    file = secret_file(folder)
    return {
        "basic": {"user": "hilum", "password_file": file},
        "bearer": {"token_file": file},
        "oauth": {
            "oauth_url": "https://127.0.0.1:1/token",
            "oauth_client_id": "hilum",
            "oauth_secret_file": file,
        },
    }


@pytest.mark.parametrize("way", ["basic", "bearer", "oauth"])
def test_no_secret_goes_over_http_to_another_machine(tmp_path: Path, way: str) -> None:
    # 192.0.2.1 is of a network for documentation (RFC 5737): nothing answers there.
    with (
        web_client("http://192.0.2.1/dicom-web", **ways(tmp_path)[way]) as client,
        pytest.raises(SourceError, match="allow_unencrypted") as caught,
    ):
        client.find(QUERY)

    assert caught.value.is_final


def test_no_client_secret_goes_over_http_to_another_machine(tmp_path: Path) -> None:
    settings = {**ways(tmp_path)["oauth"], "oauth_url": "http://192.0.2.1/token"}
    with (
        WebServer(found) as server,
        web_client(server.url, **settings) as client,
        pytest.raises(SourceError, match=r"not sent to 192\.0\.2\.1 over http"),
    ):
        client.find(QUERY)

    assert server.received == []


def test_allow_unencrypted_lets_secrets_go(tmp_path: Path) -> None:
    settings = {"timeout_seconds": 0.2, "allow_unencrypted": True, **ways(tmp_path)["basic"]}
    with (
        web_client("http://192.0.2.1/dicom-web", **settings) as client,
        pytest.raises(SourceError, match="check `url`"),
    ):
        client.find(QUERY)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), (b"", "empty"), (b"\xff", "UTF-8"), (b"x" * 70_000, "too long")],
)
def test_a_file_without_a_usable_secret_is_an_error(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with (
        WebServer(found) as server,
        web_client(server.url, token_file=file) as client,
        pytest.raises(SourceError, match=problem),
    ):
        client.find(QUERY)

    assert server.received == []


@pytest.mark.parametrize("way", ["basic", "bearer", "oauth"])
@pytest.mark.parametrize("status", [302, 400, 401, 403, 500, 503])
def test_no_secret_stands_in_logs_errors_or_representations(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str, status: int
) -> None:
    def script(request: Received) -> Reply:
        if request.path == "/token":
            answer = {"access_token": SECRET + "-token", "token_type": "bearer"}
            return reply(200, json.dumps(answer).encode())
        return reply(status, headers={"Location": "http://192.0.2.1/"})

    shown: list[str] = []
    with WebServer(script) as server, caplog.at_level(logging.DEBUG), capture_logs() as logs:
        settings = ways(tmp_path)[way]
        if way == "oauth":
            settings["oauth_url"] = f"{server.url}/token"
        with web_client(server.url, **settings) as client:
            with pytest.raises(SourceError) as caught:
                client.find(QUERY)
            shown += [repr(client), str(vars(client)), repr(caught.value), caught.value.detail]
            shown += [line.text for line in client.probe()]

    encoded = base64.b64encode(f"hilum:{SECRET}".encode()).decode()
    text = "\n".join([*shown, caplog.text, repr(logs)])
    assert SECRET not in text
    assert encoded not in text


def test_credentials_are_not_sent_to_another_host(tmp_path: Path) -> None:
    with WebServer(found) as other:
        moved = reply(307, headers={"Location": f"{other.url}/studies"})
        with (
            WebServer(lambda _: moved) as server,
            web_client(server.url, token_file=secret_file(tmp_path)) as client,
            pytest.raises(SourceError, match=f"redirects to {other.url}"),
        ):
            client.find(QUERY)

    assert other.received == []


def test_a_redirect_on_the_same_server_is_followed(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        if request.path == "/studies":
            return reply(308, headers={"Location": "/elsewhere/studies?limit=11"})
        return found(request)

    with (
        WebServer(script) as server,
        web_client(server.url, token_file=secret_file(tmp_path)) as client,
    ):
        assert len(client.find(QUERY).items) == 1

    assert server.received[1].authorization == f"Bearer {SECRET}"


@pytest.mark.parametrize("location", ["/studies", "http://[", "https://127.0.0.1/studies", ""])
def test_a_redirect_that_leads_nowhere_is_an_error(location: str) -> None:
    moved = reply(302, headers={"Location": location})
    with (
        WebServer(lambda _: moved) as server,
        web_client(server.url) as client,
        pytest.raises(SourceError, match="redirects"),
    ):
        client.find(QUERY)

    assert len(server.received) < 6


def test_no_token_is_fetched_within_a_body(oauth: OAuth) -> None:
    """A token that ends while a body is read stays: the body has been granted already."""
    oauth.find()
    images = reply(200, multipart(b"image"), {"Content-Type": RELATED})
    token_server = oauth.server.script

    def script(request: Received) -> Reply:
        if request.path.startswith("/studies/"):
            oauth.clock.now += 10 * TOKEN_SECONDS
            return images
        return token_server(request)

    oauth.server.script = script
    kept = KeptObjects()
    wanted = FetchRequest("1.2", "1.3", [ExpectedImage("1.4")], are_all=True, limit_seconds=60)
    report = oauth.client.fetch(wanted, kept, threading.Event())

    assert report.problem == ""
    assert kept.stored == [b"image"]
    assert oauth.script.tokens == 1
