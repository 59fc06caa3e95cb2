"""A FHIR R4 server as destination: one transaction a result (R4 3.1.0.11)."""

from __future__ import annotations

from typing import Final

from hilum.deliver.client import Probe, ReceiverBusy
from hilum.deliver.fhir_answer import (
    EntryAnswer,
    FhirAnswerError,
    answers_on,
    capability,
    in_words,
    issues_of,
    kinds_sent,
)
from hilum.deliver.http_answers import HttpSender, pause_of, place_of, probe_of, status_error
from hilum.domain import FHIR, Document
from hilum.errors import Refused, Retry
from hilum.observability import telemetry
from hilum.settings import FhirDestination
from hilum.web.answers import HttpAnswer
from hilum.web.client import HttpRequest

log = telemetry.logger("deliver")

_REQUEUE: Final = "see its log, then requeue the delivery"
# Two transactions that create one resource, such as the Device of a release, may end so for the
# second, which finds the resource when it is sent again (RFC 9110 15.5.10).
_CONFLICT: Final = 409
_MULTIPLE: Final = 412
# Statuses whose OperationOutcome says more than they do (R4 3.1.0.11.2).
_WITH_OUTCOME: Final = frozenset({400, _CONFLICT, _MULTIPLE, 422})
_CAPABILITY_BYTES: Final = 16 << 20  # large servers describe each resource and parameter
_VERSIONS: Final = ("4.0", "4.3")


class FhirClient:
    """The client to a FHIR server: one kept connection, one transaction at a time."""

    def __init__(self, name: str, destination: FhirDestination) -> None:
        self._name = name
        self._address = destination.address
        self._base = destination.url.rstrip("/")
        self._where = place_of(destination.url)
        self._sender = HttpSender(destination)

    def deliver(self, document: Document) -> None:
        """Return when the server says of each entry that it has it.

        See `DestinationClient.deliver`.
        """
        if document.kind != FHIR.key:
            raise Refused("not_a_bundle", f"{document.kind} is no FHIR Bundle; send it elsewhere")
        try:
            kinds = kinds_sent(document.content)
        except FhirAnswerError as error:
            raise Refused("not_a_bundle", f"the stored document cannot be sent: {error}") from error
        answer = self._sender.send(transaction(self._base, document), also=_WITH_OUTCOME)
        if not answer.is_success:
            raise self._whole(answer)
        try:
            entries = answers_on(kinds, answer.media_type, answer.body)
        except FhirAnswerError as error:
            raise Retry(
                f"{self._where} answered HTTP {answer.status}, and {error}; so the document is sent"
                " again. Check `url`, and its log"
            ) from error
        self._check(entries)

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Ask for the CapabilityStatement (see `DestinationClient.probe`)."""
        return probe_of(self._name, self._address, lambda: self._asked(limit_seconds))

    def close(self) -> None:
        """Close the connection."""
        self._sender.close()

    def _check(self, entries: list[EntryAnswer]) -> None:
        """Return when each entry is stored. Raises Retry or Refused."""
        failed = [item for item in entries if not item.is_stored]
        if not failed:
            self._note_warnings(entries)
            return
        said = f"{self._where} answered {'; '.join(item.words for item in failed[:3])}"
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        if all(item.is_passing for item in failed):
            raise ReceiverBusy(f"{said}{more}: it failed; its log may say why", is_outage=True)
        if all(item.is_passing or item.status == _CONFLICT for item in failed):
            raise Retry(f"{said}{more}: {_CONFLICT_ADVICE}")
        advice = _MULTIPLE_ADVICE if any(item.status == _MULTIPLE for item in failed) else _REQUEUE
        raise Refused("entry_refused", f"{said}{more}; {advice}")

    def _whole(self, answer: HttpAnswer) -> Retry | Refused:
        """Return the error for an answer that refuses the whole transaction."""
        issues = issues_of(answer.media_type, answer.body)
        errors = [item for item in issues if item.is_error]
        said = f"{self._where} answered HTTP {answer.status}{in_words(errors)}"
        if errors and all(item.is_passing for item in errors):
            text = f"{said}: it failed; its log may say why"
            return ReceiverBusy(text, after_seconds=pause_of(answer), is_outage=True)
        if answer.status == _CONFLICT:
            return Retry(f"{said}: {_CONFLICT_ADVICE}")
        if answer.status == _MULTIPLE:
            return Refused("document_refused", f"{said}: {_MULTIPLE_ADVICE}")
        if errors:
            return Refused("document_refused", f"{said}: it refuses the transaction; {_REQUEUE}")
        return status_error(answer, self._where)

    def _note_warnings(self, entries: list[EntryAnswer]) -> None:
        warnings = [issue for item in entries for issue in item.issues]
        codes = sorted({issue.code for issue in warnings if issue.severity == "warning"})
        if codes:
            log.info("stored_with_warning", destination=self._name, warning=", ".join(codes))

    def _asked(self, limit_seconds: float | None) -> str:
        """Return the findings of a probe. Raises Retry or Refused."""
        query = HttpRequest(f"{self._base}/metadata", headers={"Accept": FHIR.media_type})
        answer = self._sender.send(
            query, limit_seconds=limit_seconds, maximum_bytes=_CAPABILITY_BYTES
        )
        try:
            version, takes_transactions = capability(answer.media_type, answer.body)
        except FhirAnswerError as error:
            raise Retry(
                f"{self._where} answered HTTP {answer.status} to /metadata, and {error}; correct"
                " `url`"
            ) from error
        if not version.startswith(_VERSIONS):
            raise Refused(
                "address_refused",
                f"{self._where} serves FHIR {version}, and the Bundles are of FHIR R4 (4.0.1);"
                " correct `url`",
            )
        if not takes_transactions:
            return f"it serves FHIR {version}, and does not say that it takes transactions"
        return f"it serves FHIR {version} and takes transactions"


_CONFLICT_ADVICE: Final = (
    "it finds a conflict, which another transaction may have caused; so the document is sent again."
    " Its log says which"
)
_MULTIPLE_ADVICE: Final = (
    "it has several resources of one identity, where one may be; delete the others there, then"
    " requeue the delivery"
)


def transaction(base: str, document: Document) -> HttpRequest:
    """Return the request that sends a Bundle, with its stored bytes as they are.

    The answer shall not repeat the resources.
    """
    return HttpRequest(
        base,
        "POST",
        {
            "Content-Type": FHIR.media_type,
            "Accept": FHIR.media_type,
            "Prefer": "return=minimal",
        },
        document.content,
    )
