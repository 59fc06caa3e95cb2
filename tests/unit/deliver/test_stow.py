"""STOW-RS: answers that no real server gives on demand."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hilum.deliver import ReceiverBusy, SopClassRefused, UnknownOutcome
from hilum.deliver.circuit_breaker import CircuitBreaker
from hilum.domain import SR_CLASS_PREFERENCE, Document
from hilum.errors import Refused, Retry
from hilum.settings import Pipeline
from tests.support.deliver.stow_receiver import DICOM_JSON, REPORT, UID, answer, client_of, item
from tests.support.peers.certificates import Authority, Identity, authority
from tests.support.retrieve.web_server import Received, Reply, WebServer, chunked, reply

__all__ = ["authority"]
PATIENT = "Miller^Ann"
HTML = {"Content-Type": "text/html"}


def outcome(script: Reply | Callable[[Received], Reply], **settings: Any) -> Exception | None:
    """The error of a delivery, or None."""
    answers = script if callable(script) else lambda _: script
    with WebServer(answers) as server, client_of(server.url, **settings) as client:
        return error_of(lambda: client.deliver(REPORT))


def error_of(deliver: Callable[[], None]) -> Exception | None:
    try:
        deliver()
    except (Retry, Refused) as error:
        return error
    return None


def retried(error: Exception | None) -> Retry:
    assert isinstance(error, Retry)
    return error


def refused(error: Exception | None) -> Refused:
    assert isinstance(error, Refused)
    return error


def test_one_instance_goes_in_one_part_with_a_length() -> None:
    with WebServer(lambda _: answer([item()])) as server, client_of(server.url) as client:
        client.deliver(REPORT)
        client.deliver(REPORT)

    first, second = server.received
    boundary = first.headers["content-type"].rpartition("boundary=")[2]
    assert (first.method, first.path) == ("POST", "/dicom-web/studies")
    assert first.headers["content-type"].startswith('multipart/related; type="application/dicom";')
    assert first.headers["accept"] == "application/dicom+json"
    assert first.headers["content-length"] == str(len(first.body))
    head, _, rest = first.body.partition(b"\r\n\r\n")
    assert head == f"--{boundary}\r\nContent-Type: application/dicom".encode()
    assert rest == REPORT.content + f"\r\n--{boundary}--\r\n".encode()
    assert second.body != first.body, "a boundary of its own"


def test_a_document_that_is_no_object_is_refused_unsent() -> None:
    with WebServer(lambda _: answer([])) as server, client_of(server.url) as client:
        error = error_of(lambda: client.deliver(Document("json", "application/json", b"{}")))

    assert refused(error).reason == "not_a_dicom_object"
    assert server.received == []


@pytest.mark.parametrize("warning", [0xB000, 0xB006, 0xB007])
def test_a_warning_is_stored_with_a_note(warning: int) -> None:
    with capture_logs() as logs:
        assert outcome(answer([item(warning=warning)])) is None

    (note,) = [entry for entry in logs if entry["event"] == "stored_with_warning"]
    assert (note["sop_instance_uid"], note["warning"]) == (UID, f"0x{warning:04X}")


@pytest.mark.parametrize("status", [200, 202, 409])
def test_that_our_bytes_are_there_already_is_a_success(status: int) -> None:
    assert outcome(answer([], [item(failure=0xB00E)], status)) is None


@pytest.mark.parametrize(
    "told",
    [
        answer([]),
        answer([item("1.2.3.40")]),
        reply(200, b"", DICOM_JSON),
        reply(200),
        reply(204),
        reply(200, b"<html>Sign in, Miller^Ann</html>", HTML),
        reply(200, b'{"00081199": ', DICOM_JSON),
        reply(200, b"[]", DICOM_JSON),
        reply(200, b'{"00081199": {"vr": "SQ", "Value": ["1.2.3.4", {}, null]}}', DICOM_JSON),
        answer([item()], [item(failure=0xA900)]),
        answer([item()], status=409),
        answer([], [item(failure=0xB00F)], 409),
        answer([], [item()], 409),
    ],
)
def test_without_a_clear_statement_it_is_sent_again_and_counted(told: Reply) -> None:
    error = retried(outcome(told))

    assert not error.is_outage
    assert "Check `url`" in error.detail
    assert PATIENT not in error.detail


def test_another_instance_is_no_statement_on_ours() -> None:
    error = retried(outcome(answer([item("1.2.3.40")], [item("1.2.3.41", 0xA900)], 202)))

    assert "does not name our instance as stored, but 2 other" in error.detail


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0xA900, "data_set_refused"),
        (0xC000, "data_set_refused"),
        (0xC122, "data_set_refused"),
        (0x0110, "data_set_refused"),
        (0x0124, "not_authorised"),
    ],
)
@pytest.mark.parametrize("status", [202, 409])
def test_a_failure_of_our_instance_is_a_refusal(status: int, code: int, reason: str) -> None:
    error = refused(outcome(answer([], [item(failure=code)], status)))

    assert error.reason == reason
    assert re.search(f"0x{code:04X}: .+ then requeue", error.detail)


def test_a_failure_that_names_no_instance_is_ours() -> None:
    body = json.dumps({"0008119A": {"vr": "SQ", "Value": [item("", failure=0xC000)]}}).encode()

    assert refused(outcome(reply(409, body))).reason == "data_set_refused"


def test_a_full_archive_is_busy_and_costs_no_try() -> None:
    error = retried(outcome(answer([], [item(failure=0xA700)], 409)))

    assert isinstance(error, ReceiverBusy)
    assert error.is_outage


def test_a_refused_class_goes_down_the_ladder_by_one() -> None:
    error = refused(outcome(answer([], [item(failure=0x0122)], 409)))

    assert isinstance(error, SopClassRefused)
    assert error.accepted is SR_CLASS_PREFERENCE[1]


def test_a_class_that_the_settings_leave_out_is_not_sent() -> None:
    with (
        WebServer(lambda _: answer([item()])) as server,
        client_of(server.url, sr_classes=("enhanced",)) as client,
    ):
        error = error_of(lambda: client.deliver(REPORT))

    assert isinstance(error, SopClassRefused)
    assert error.accepted.name == "enhanced"
    assert server.received == []


def test_the_last_class_that_is_refused_is_a_refusal() -> None:
    last = replace(REPORT, sop_class_uid=SR_CLASS_PREFERENCE[-1].sop_class_uid)
    refusal = answer([], [item(failure=0x0122)], 409)
    with WebServer(lambda _: refusal) as server, client_of(server.url) as client:
        error = refused(error_of(lambda: client.deliver(last)))

    assert not isinstance(error, SopClassRefused)
    assert error.reason == "sop_class_refused"


XML = """<?xml version="1.0" encoding="{coding}"?>{doctype}
<NativeDicomModel xmlns="http://dicom.nema.org/PS3.19/models/NativeDICOM">
<DicomAttribute tag="00081199" vr="SQ" keyword="ReferencedSOPSequence"><Item number="1">
<DicomAttribute tag="00081155" vr="UI" keyword="ReferencedSOPInstanceUID">
<Value number="1">{uid}</Value></DicomAttribute>
</Item></DicomAttribute></NativeDicomModel>"""


def xml(uid: str = UID, coding: str = "utf-8", doctype: str = "") -> Reply:
    body = XML.format(uid=uid, coding=coding, doctype=doctype).encode(coding)
    return reply(200, body, {"Content-Type": "application/dicom+xml"})


@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_an_answer_in_xml_is_understood(coding: str) -> None:
    assert outcome(xml(coding=coding)) is None


@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_xml_with_entities_is_not_read(coding: str) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "1.2.3.4">]>'

    error = retried(outcome(xml("&b;", coding, bomb)))

    assert "document type" in error.detail


DEEP = b'<DicomAttribute tag="00081199"><Item>' * 5000 + b"</Item></DicomAttribute>" * 5000


@pytest.mark.parametrize(
    "body",
    [
        b"<NativeDicomModel>",
        b"<html/>",
        b"",
        b"\xff",
        b"<NativeDicomModel>%b</NativeDicomModel>" % DEEP,
    ],
    ids=["half", "html", "empty", "bytes", "deep"],
)
def test_xml_that_is_no_data_set_is_no_statement(body: bytes) -> None:
    told = reply(200, body, {"Content-Type": "application/dicom+xml"})

    assert not retried(outcome(told)).is_outage


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (301, "address_refused"),
        (307, "address_refused"),
        (400, "document_refused"),
        (403, "not_authorised"),
        (404, "address_refused"),
        (405, "address_refused"),
        (409, "document_refused"),
        (410, "address_refused"),
        (413, "document_refused"),
        (415, "document_refused"),
        (418, "document_refused"),
        (422, "document_refused"),
    ],
)
def test_a_status_that_does_not_pass_is_a_refusal(status: int, reason: str) -> None:
    told = reply(status, b"Miller^Ann is unknown", {"Content-Type": "text/plain"})

    error = refused(outcome(told))

    assert error.reason == reason
    assert f"HTTP {status}: " in error.detail
    assert "requeue" in error.detail
    assert PATIENT not in error.detail


@pytest.mark.parametrize("status", [401, 408, 429, 500, 502, 503, 504, 507])
def test_a_status_that_passes_is_an_outage(status: int) -> None:
    error = retried(outcome(reply(status, headers={"Retry-After": "7"})))

    assert error.is_outage
    assert error.after_seconds == 7.0
    assert isinstance(error, ReceiverBusy) is (status in {500, 507})


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("100000", 900.0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 900.0),
        ("Fri, 01 Jan 2010 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", None),
    ],
)
def test_a_pause_is_taken_within_reason(value: str, seconds: float | None) -> None:
    error = retried(outcome(reply(503, headers={"Retry-After": value})))

    assert error.after_seconds == seconds


def test_a_pause_that_the_receiver_asks_for_holds_the_whole_destination() -> None:
    told = reply(503, headers={"Retry-After": "120"})
    with WebServer(lambda _: told) as server, client_of(server.url) as client:
        breaker = CircuitBreaker("archive", client, Pipeline(backoff_seconds=0.001))
        first = retried(error_of(lambda: breaker.deliver(REPORT)))
        second = retried(error_of(lambda: breaker.deliver(REPORT)))

    assert first.after_seconds == 120.0
    assert 0.0 < (second.after_seconds or 0.0) <= 120.0
    assert len(server.received) == 1


def test_a_redirect_is_not_followed_and_named() -> None:
    with WebServer(lambda _: answer([item()])) as other:
        moved = reply(307, headers={"Location": f"{other.url}/dicom-web/studies?token=secret"})
        error = refused(outcome(moved))

    assert other.received == []
    assert "it redirects to http://127.0.0.1, and documents follow no redirect" in error.detail
    assert "secret" not in error.detail


@pytest.mark.parametrize("location", ["http://[", "//\u00fc/", ""])
def test_a_hostile_redirect_is_not_repeated(location: str) -> None:
    error = refused(outcome(reply(302, headers={"Location": location})))

    assert "it redirects, and" in error.detail


def test_a_401_is_answered_with_a_new_token_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old", encoding="utf-8")

    def script(request: Received) -> Reply:
        if request.authorization == "Bearer old":
            file.write_text("new", encoding="utf-8")
            return reply(401)
        return answer([item()])

    assert outcome(script, token_file=file) is None


def test_credentials_that_stay_wrong_are_an_outage(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret", encoding="utf-8")

    error = retried(outcome(reply(401), token_file=file))

    assert error.is_outage
    assert "token_file" in error.detail
    assert "s3cret" not in error.detail


def test_a_document_that_got_no_answer_is_perhaps_there() -> None:
    for told in (
        Reply(b""),
        Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"),
        chunked([b"{"], "application/dicom+json", end=b""),
        Reply(b"hello\r\n\r\n"),
        reply(200, b"x", {"Content-Encoding": "gzip", **DICOM_JSON}),
        reply(200, bytes(2 << 20), DICOM_JSON),
    ):
        error = outcome(told)
        assert isinstance(error, UnknownOutcome), told.raw[:60]
        assert not error.is_outage
        assert "the same bytes are sent again" in error.detail


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"])
def test_a_receiver_that_hangs_is_left(head: bytes) -> None:
    release = threading.Event()
    with WebServer(lambda _: Reply(head, hold=release)) as server:
        with client_of(server.url, timeout_seconds=0.3) as client:
            error = error_of(lambda: client.deliver(REPORT))
        release.set()

    assert isinstance(error, UnknownOutcome)
    assert "timeout_seconds" in error.detail


def served(identity: Identity, trusted: Path | None = None) -> WebServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    if trusted is not None:
        context.load_verify_locations(trusted)
        context.verify_mode = ssl.CERT_REQUIRED
    return WebServer(lambda _: answer([item()]), tls=context)


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.mark.usefixtures("no_proxy")
def test_a_certificate_that_has_expired_is_an_outage_with_the_remedy(authority: Authority) -> None:
    with (
        served(authority.identity("old", "IP:127.0.0.1", days=-1)) as server,
        client_of(server.url, ca_file=authority.file) as client,
    ):
        error = retried(error_of(lambda: client.deliver(REPORT)))

    assert error.is_outage
    assert not isinstance(error, UnknownOutcome)
    assert "certificate has expired" in error.detail
    assert server.received == []


@pytest.mark.usefixtures("no_proxy")
def test_a_renewed_file_of_tls_is_used_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    ours = tmp_path / "ca.pem"
    ours.write_bytes(authority.identity("stranger", "DNS:a").certificate.read_bytes())
    with (
        served(authority.identity("archive", "IP:127.0.0.1")) as server,
        client_of(server.url, ca_file=ours) as client,
    ):
        assert "TLS failed" in retried(error_of(lambda: client.deliver(REPORT))).detail
        ours.write_bytes(authority.file.read_bytes())
        client.deliver(REPORT)

    assert len(server.received) == 1


@pytest.mark.usefixtures("no_proxy")
def test_our_certificate_is_shown_where_it_is_asked_for(authority: Authority) -> None:
    ours = authority.identity("ours", "DNS:hilum.test")
    files = {"certificate_file": ours.certificate, "key_file": ours.key}
    identity = authority.identity("archive", "IP:127.0.0.1")
    with served(identity, authority.file) as server:
        with client_of(server.url, ca_file=authority.file, **files) as client:
            client.deliver(REPORT)
        with client_of(server.url, ca_file=authority.file) as stranger:
            error = retried(error_of(lambda: stranger.deliver(REPORT)))

    assert error.is_outage
    assert "certificate_file" in error.detail
    assert len(server.received) == 1


@pytest.mark.usefixtures("no_proxy")
def test_a_key_of_another_certificate_is_an_outage_that_names_the_file(
    authority: Authority,
) -> None:
    ours = authority.identity("one", "DNS:a")
    other = authority.identity("two", "DNS:b")
    files = {"certificate_file": ours.certificate, "key_file": other.key}
    with client_of("https://127.0.0.1:1", **files) as client:
        error = retried(error_of(lambda: client.deliver(REPORT)))

    assert error.is_outage
    assert f"key_file {other.key}" in error.detail


def test_a_secret_does_not_go_unencrypted_to_another_machine(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret", encoding="utf-8")
    with client_of("http://192.0.2.1", token_file=file) as client:
        error = retried(error_of(lambda: client.deliver(REPORT)))

    assert "allow_unencrypted" in error.detail


@pytest.mark.parametrize(
    ("get", "options", "is_ok", "said"),
    [
        (reply(200, b"[]"), None, True, "answers QIDO-RS"),
        (reply(204), None, True, "answers QIDO-RS"),
        (reply(405), None, True, "answers no queries"),
        (reply(404), reply(204), True, "answers OPTIONS"),
        (reply(404), reply(404), False, "HTTP 404: it has nothing at this address"),
        (reply(401), None, False, "HTTP 401: it wants other credentials"),
        (reply(503), None, False, "HTTP 503"),
        (reply(302), None, False, "it redirects"),
    ],
)
def test_a_probe_asks_and_stores_nothing(
    get: Reply, options: Reply | None, is_ok: bool, said: str
) -> None:
    def script(request: Received) -> Reply:
        return options if request.method == "OPTIONS" and options else get

    with WebServer(script) as server, client_of(server.url) as client:
        found = client.probe(5.0)

    assert (found.is_ok, found.address) == (is_ok, f"{server.url}/dicom-web")
    assert said in found.detail
    assert {request.method for request in server.received} <= {"GET", "OPTIONS"}
    assert server.received[0].query["limit"] == "1"
    assert "StudyInstanceUID" in server.received[0].query
