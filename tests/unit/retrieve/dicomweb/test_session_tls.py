"""TLS to a DICOMweb server: its certificate is verified."""

from __future__ import annotations

import ssl
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hilum.domain import ExpectedImage
from hilum.retrieve.source import FetchReport, FetchRequest, Level, Query, SourceError
from tests.support.machine.waiting import wait_for
from tests.support.peers.certificates import Authority, Identity, authority
from tests.support.retrieve.kept_objects import KeptObjects
from tests.support.retrieve.sources import web_client
from tests.support.retrieve.web_server import (
    WebServer,
    dicom_json,
    multipart,
    study,
    unbounded,
)

QUERY = Query(Level.STUDY, {}, 10)
__all__ = ["authority"]


def served(identity: Identity) -> WebServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return WebServer(lambda _: dicom_json([study(1)]), tls=context)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_server_of_the_given_authority_is_trusted(authority: Authority, tmp_path: Path) -> None:
    identity = authority.identity("archive", "IP:127.0.0.1")
    secret = tmp_path / "token"
    secret.write_text("abc", encoding="utf-8")
    with (
        served(identity) as server,
        web_client(server.url, ca_file=authority.file, token_file=secret) as client,
    ):
        assert len(client.find(QUERY).items) == 1

    assert server.received[0].authorization == "Bearer abc"


def problem_with(server: WebServer, **settings: Any) -> SourceError:
    with web_client(server.url, **settings) as client, pytest.raises(SourceError) as caught:
        client.find(QUERY)
    return caught.value


def test_a_server_of_an_unknown_authority_is_refused(authority: Authority) -> None:
    with served(authority.identity("unknown", "IP:127.0.0.1")) as server:
        problem = problem_with(server)

    assert "TLS failed" in problem.detail
    assert "ca_file" in problem.detail
    assert problem.is_outage
    assert server.received == []


def test_a_certificate_of_another_host_is_refused(authority: Authority) -> None:
    with served(authority.identity("other", "DNS:pacs.test")) as server:
        assert "TLS failed" in problem_with(server, ca_file=authority.file).detail

    assert server.received == []


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_without_certificates_is_an_error(
    authority: Authority, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with served(authority.identity("archive", "IP:127.0.0.1")) as server:
        assert f"ca_file {file}" in problem_with(server, ca_file=file).detail


def test_stop_ends_a_silent_body_over_tls(authority: Authority) -> None:
    release = threading.Event()
    stop = threading.Event()
    kept = KeptObjects()
    reports: list[FetchReport] = []
    wanted = FetchRequest("1.2", "1.3", [ExpectedImage("1.4")], are_all=True, limit_seconds=100)
    answer = unbounded(multipart(b"first", b"second")[:-20])
    with served(authority.identity("archive", "IP:127.0.0.1")) as server:
        server.script = lambda _: replace(answer, hold=release)
        with web_client(server.url, ca_file=authority.file, timeout_seconds=1000.0) as client:
            fetching = threading.Thread(
                target=lambda: reports.append(client.fetch(wanted, kept, stop))
            )
            fetching.start()
            wait_for(lambda: kept.stored)
            stop.set()
            fetching.join(120)
        release.set()

    assert not fetching.is_alive()
    assert reports[0].status == "stopped"
    assert kept.stored == [b"first"]
