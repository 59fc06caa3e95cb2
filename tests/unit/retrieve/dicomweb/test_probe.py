"""The probe of a DICOMweb server: each finding, in few and small requests."""

from __future__ import annotations

from typing import Any

import pytest

from hilum.retrieve.source import ProbeLine
from tests.support.retrieve.sources import web_client
from tests.support.retrieve.web_server import (
    Received,
    Reply,
    Script,
    WebServer,
    dicom_json,
    element,
    page_of,
    reply,
    study,
)


def archive(request: Received) -> Reply:
    """A server that does everything."""
    if request.path.endswith("/metadata"):
        return dicom_json([{}])
    if request.method == "HEAD":
        return reply(200)
    if request.path.endswith("/instances"):
        return dicom_json([{"00080018": element("UI", "1.2.3.4")}])
    if request.path.endswith("/series"):
        return dicom_json([{"0020000E": element("UI", "1.2.3")}])
    if request.query.get("ModalitiesInStudy") == "ZZ":
        return dicom_json([])
    return dicom_json(page_of([study(n) for n in range(120)], request))


def probe(script: Script, **settings: Any) -> tuple[dict[str, ProbeLine], WebServer]:
    with WebServer(script) as server, web_client(server.url, **settings) as client:
        lines = client.probe()
    return {line.topic: line for line in lines}, server


def test_a_server_that_does_everything_is_all_right() -> None:
    lines, server = probe(archive)

    assert {topic: line.is_ok for topic, line in lines.items()} == {
        "encryption": None,
        "QIDO-RS": True,
        "limit": True,
        "results": True,
        "offset": True,
        "ModalitiesInStudy": True,
        "WADO-RS": True,
    }
    assert "transfer-syntax=* is accepted" in lines["WADO-RS"].text
    assert sum(path.endswith("/metadata") for path in server.paths()) == 1
    assert len(server.received) < 10


def changed(topic: str) -> Script:
    """The server with one fault."""

    def script(request: Received) -> Reply:
        if topic == "offset" and request.query.get("offset"):
            return dicom_json([study(0)])
        if topic == "limit" and request.query.get("limit") == "2":
            return dicom_json([study(n) for n in range(20)])
        if topic == "ModalitiesInStudy" and request.query.get(topic):
            return dicom_json([study(0)])
        if topic == "WADO-RS" and request.path.endswith("/metadata"):
            return reply(404)
        if topic == "results" and request.query.get("limit") == "100":
            return reply(400)
        return archive(request)

    return script


@pytest.mark.parametrize(
    ("topic", "is_ok", "text"),
    [
        ("offset", False, "cut off"),
        ("limit", None, "ignored: 20 studies"),
        ("ModalitiesInStudy", False, 'ignores = ["ModalitiesInStudy"]'),
        ("WADO-RS", False, "HTTP 404"),
        ("results", False, "HTTP 400"),
    ],
)
def test_a_fault_is_found(topic: str, is_ok: bool | None, text: str) -> None:
    lines, _ = probe(changed(topic))

    assert lines[topic].is_ok is is_ok
    assert text in lines[topic].text
    assert [t for t, line in lines.items() if line.is_ok is False] == (
        [topic] if is_ok is False else []
    )


@pytest.mark.parametrize(
    ("status", "text"), [(200, "accepted"), (406, "refused"), (405, "not tested (HTTP 405")]
)
def test_the_stored_syntax_is_asked_for_without_a_body(status: int, text: str) -> None:
    def script(request: Received) -> Reply:
        return reply(status) if request.method == "HEAD" else archive(request)

    lines, _ = probe(script)

    assert text in lines["WADO-RS"].text
    assert lines["WADO-RS"].is_ok


def test_an_empty_archive_is_not_tested_further() -> None:
    lines, _ = probe(lambda _: reply(204))

    assert lines["QIDO-RS"].is_ok
    assert lines["offset"].is_ok is None
    assert "WADO-RS" not in lines


def test_a_server_that_is_down_is_one_line() -> None:
    lines, _ = probe(lambda _: reply(503))

    assert lines["QIDO-RS"].is_ok is False
    assert "HTTP 503" in lines["QIDO-RS"].text
