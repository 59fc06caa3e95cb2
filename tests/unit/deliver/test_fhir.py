"""A FHIR server as destination: answers that a real server does not give on demand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from hilum.deliver import ReceiverBusy, UnknownOutcome
from hilum.domain import Document
from hilum.errors import Refused, Retry
from hilum.settings import FhirDestination
from testing.fhir_server import CAPABILITY, FhirServer
from tests.support.deliver.fhir_receiver import (
    BUNDLE,
    KINDS,
    PATIENT,
    client_of,
    failed,
    outcome,
    resource,
    response,
    stored,
)
from tests.support.fhir.bundles import built, images
from tests.support.reports.results import make_release, report_of
from tests.support.retrieve.web_server import Reply, WebServer, reply

HTML = {"Content-Type": "text/html"}


def ending(told: Reply, document: Document = BUNDLE) -> Exception | None:
    """The error of a delivery, or None."""
    with WebServer(lambda _: told) as server, client_of(server.url) as client:
        try:
            client.deliver(document)
        except (Retry, Refused) as error:
            return error
    return None


def retried(told: Reply) -> Retry:
    error = ending(told)
    assert isinstance(error, Retry)
    assert PATIENT not in str(error)
    return error


def refused(told: Reply) -> Refused:
    error = ending(told)
    assert isinstance(error, Refused)
    assert PATIENT not in str(error)
    return error


def with_third(entry: dict[str, Any]) -> Reply:
    """An answer whose last entry is this one."""
    return response(*(stored(kind) for kind in KINDS[:2]), entry)


def test_the_stored_bytes_go_to_the_base_as_they_are() -> None:
    with WebServer(lambda _: response()) as server, client_of(server.url) as client:
        client.deliver(BUNDLE)
        client.deliver(BUNDLE)

    first, second = server.received
    assert (first.method, first.path) == ("POST", "/fhir")
    assert first.headers["content-type"] == "application/fhir+json"
    assert first.headers["accept"] == "application/fhir+json"
    assert first.headers["prefer"] == "return=minimal"
    assert first.body == second.body == BUNDLE.content


def test_a_slash_at_the_end_of_the_base_changes_nothing() -> None:
    with (
        WebServer(lambda _: response()) as server,
        client_of(server.url, url=f"{server.url}/fhir/") as client,
    ):
        client.deliver(BUNDLE)

    assert server.paths() == ["/fhir"]


def test_a_result_that_is_sent_again_is_there_once() -> None:
    document = built(report_of(images(), make_release()))
    with FhirServer() as server, client_of(server.url.removesuffix("/fhir")) as client:
        client.deliver(document)
        held = dict(server.store.resources)
        client.deliver(document)

    assert server.store.resources == held
    assert len(server.store.of("DiagnosticReport")) == 1


@pytest.mark.parametrize(
    "document",
    [
        Document("json", "application/json", b"{}"),
        Document("fhir", "application/fhir+json", b'{"resourceType": "Bundle"}'),
        Document("fhir", "application/fhir+json", b""),
    ],
)
def test_a_document_that_is_no_transaction_is_refused_unsent(document: Document) -> None:
    with (
        WebServer(lambda _: response()) as server,
        client_of(server.url) as client,
        pytest.raises(Refused) as caught,
    ):
        client.deliver(document)

    assert caught.value.reason == "not_a_bundle"
    assert server.received == []


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "201", "200"])
def test_an_entry_that_was_there_or_is_created_is_delivered(status: str) -> None:
    assert ending(response(*(stored(kind, status) for kind in KINDS))) is None


def test_an_entry_without_a_location_is_delivered() -> None:
    assert ending(with_third({"response": {"status": "200"}})) is None


@pytest.mark.parametrize(
    "told",
    [
        reply(200),
        reply(204),
        reply(202, b"", {"Content-Location": "https://ris.example.org/fhir/jobs/1"}),
        reply(200, f"<html>Sign in, {PATIENT}</html>".encode(), HTML),
        reply(200, f"<html>Sign in, {PATIENT}</html>".encode()),
        reply(200, b'{"resourceType": "Bundle", "type": "transaction-resp'),
        reply(200, b"[]"),
        reply(200, b"[" * 100_000),
        reply(200, b'{"n": ' + b"1" * 5000 + b"}"),
        response(type="batch-response"),
        response(resourceType="Parameters"),
        response(entry=None),
        response(entry={}),
        response(entry=[stored("Device")]),
        response(*(stored(kind) for kind in (*KINDS, "Provenance"))),
        response(*(stored(kind) for kind in reversed(KINDS))),
        with_third({}),
        with_third({"response": None}),
        with_third({"response": {"status": None}}),
        with_third({"response": {"status": "2010"}}),
        with_third({"response": {"status": "Created"}}),
        resource(outcome("information", "informational")),
        resource(json.loads(BUNDLE.content)),
    ],
)
def test_without_a_statement_on_each_entry_it_is_sent_again_and_counted(told: Reply) -> None:
    error = retried(told)

    assert not error.is_outage
    assert not isinstance(error, ReceiverBusy)
    assert "Check `url`" in error.detail


@pytest.mark.parametrize("status", ["400", "404 Not Found", "412", "422 Unprocessable"])
def test_a_200_with_an_entry_that_failed_is_a_refusal(status: str) -> None:
    error = refused(with_third({"response": {"status": status}}))

    assert error.reason == "entry_refused"
    assert f"entry 3 (DiagnosticReport): {status[:3]}" in error.detail
    assert "requeue" in error.detail


def test_several_resources_of_one_identity_are_named_as_the_cause() -> None:
    error = refused(with_third(failed("412", code="multiple-matches")))

    assert "412, OperationOutcome error multiple-matches; it has several" in error.detail


@pytest.mark.parametrize("severity", ["error", "fatal", "catastrophic", None])
def test_an_error_counts_whatever_the_status_says(severity: Any) -> None:
    error = refused(with_third(stored(KINDS[2], outcome=outcome(severity, "business-rule"))))

    assert error.reason == "entry_refused"
    assert "business-rule" in error.detail


@pytest.mark.parametrize("severity", ["warning", "information"])
def test_less_than_an_error_is_delivered_with_a_note(severity: str) -> None:
    with capture_logs() as logs:
        assert (
            ending(with_third(stored(KINDS[2], outcome=outcome(severity, "code-invalid")))) is None
        )

    notes = [item["warning"] for item in logs if item["event"] == "stored_with_warning"]
    assert notes == (["code-invalid"] if severity == "warning" else [])
    assert PATIENT not in str(logs)


def test_an_outcome_in_place_of_an_answer_is_a_refusal() -> None:
    error = refused(resource(outcome("error", "processing")))

    assert (error.reason, "error processing" in error.detail) == ("entry_refused", True)


def test_the_code_of_an_issue_is_said_only_if_fhir_has_it() -> None:
    error = refused(with_third(failed("422", code=PATIENT)))

    assert "422, OperationOutcome error;" in error.detail


@pytest.mark.parametrize(
    "entry",
    [
        {"response": {"status": "503"}},
        {"response": {"status": "429"}},
        failed("409", code="lock-error"),
        failed("500", severity="fatal", code="exception"),
        stored(KINDS[2], outcome=outcome("error", "throttled")),
    ],
)
def test_an_entry_that_may_pass_by_itself_waits(entry: dict[str, Any]) -> None:
    error = retried(with_third(entry))

    assert isinstance(error, ReceiverBusy)
    assert error.is_outage


def test_one_entry_that_never_passes_refuses_all() -> None:
    told = response(stored(KINDS[0]), {"response": {"status": "503"}}, failed("422"))

    assert "entry 2" in refused(told).detail


@pytest.mark.parametrize("status", [400, 412, 422])
def test_a_transaction_that_is_refused_whole_says_with_which_code(status: int) -> None:
    error = refused(resource(outcome("error", "invariant"), status))

    assert error.reason == "document_refused"
    assert f"HTTP {status}, OperationOutcome error invariant: " in error.detail


@pytest.mark.parametrize("status", [400, 412, 422])
def test_a_refusal_without_an_outcome_is_one_by_its_status(status: int) -> None:
    for body in (b"", f"<p>{PATIENT}</p>".encode(), b'{"resourceType": "OperationOutcome"}'):
        error = refused(reply(status, body, HTML))
        assert error.reason == "document_refused"
        assert f"HTTP {status}: " in error.detail


@pytest.mark.parametrize(
    "told",
    [
        with_third({"response": {"status": "409"}}),
        with_third(failed("409", code="duplicate")),
        resource(outcome("error", "conflict"), 409),
        reply(409, b"", HTML),
    ],
)
def test_a_conflict_with_another_transaction_is_sent_again_and_counted(told: Reply) -> None:
    error = retried(told)

    assert not error.is_outage
    assert "409" in error.detail
    assert "sent again" in error.detail


def test_a_conflict_beside_a_refusal_is_a_refusal() -> None:
    told = response(stored(KINDS[0]), {"response": {"status": "409"}}, failed("422"))

    assert "entry 2" in refused(told).detail


def test_a_conflict_that_passes_waits() -> None:
    told = resource(outcome("error", "lock-error"), 409)

    assert isinstance(retried(told), ReceiverBusy)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(301, "address_refused"), (403, "not_authorised"), (404, "address_refused")],
)
def test_other_statuses_mean_what_they_mean_for_all(status: int, reason: str) -> None:
    assert refused(reply(status, PATIENT.encode())).reason == reason


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_status_that_passes_is_an_outage(status: int) -> None:
    assert retried(resource(outcome("error", "exception"), status)).is_outage


def test_a_redirect_to_another_server_is_not_followed() -> None:
    with WebServer(lambda _: response()) as other:
        error = refused(reply(307, headers={"Location": f"{other.url}/fhir"}))

    assert other.received == []
    assert "it redirects to http://127.0.0.1" in error.detail


@pytest.mark.parametrize(
    "told", [Reply(b""), Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")]
)
def test_a_bundle_that_got_half_an_answer_is_perhaps_there(told: Reply) -> None:
    error = retried(told)

    assert isinstance(error, UnknownOutcome)
    assert not error.is_outage


@pytest.mark.parametrize(
    ("told", "is_ok", "said"),
    [
        (resource(CAPABILITY), True, "serves FHIR 4.0.1 and takes transactions"),
        (resource({**CAPABILITY, "rest": []}), True, "does not say that it takes transactions"),
        (resource({**CAPABILITY, "rest": [{"mode": "client"}, 1]}), True, "does not say"),
        (resource({**CAPABILITY, "padding": "a" * (2 << 20)}), True, "serves FHIR 4.0.1"),
        (resource({**CAPABILITY, "fhirVersion": "5.0.0"}), False, "serves FHIR 5.0.0"),
        (resource({**CAPABILITY, "fhirVersion": PATIENT}), False, "names no version of FHIR"),
        (resource({"resourceType": "Patient"}), False, "no CapabilityStatement; correct `url`"),
        (reply(200, b"<html>", HTML), False, "its body is no JSON"),
        (reply(200), False, "its body is empty"),
        (reply(404), False, "HTTP 404"),
        (reply(401), False, "HTTP 401"),
        (reply(302), False, "it redirects"),
    ],
)
def test_a_probe_asks_what_the_server_is_and_stores_nothing(
    told: Reply, is_ok: bool, said: str
) -> None:
    with WebServer(lambda _: told) as server, client_of(server.url) as client:
        found = client.probe(20.0)

    assert (found.is_ok, found.address) == (is_ok, f"{server.url}/fhir")
    assert said in found.detail
    assert PATIENT not in found.detail
    assert [(item.method, item.path) for item in server.received] == [("GET", "/fhir/metadata")]


def test_a_destination_takes_bundles_alone() -> None:
    url = "https://ris.example.org/fhir"
    assert FhirDestination(url=url).documents == ("fhir",)
    with pytest.raises(ValidationError, match="which is no FHIR Bundle; it takes fhir"):
        FhirDestination(url=url, documents=("sr",))
