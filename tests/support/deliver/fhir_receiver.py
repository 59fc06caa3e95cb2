"""Scripted answers of a FHIR server, and a client of the server that gives them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

from hilum.deliver.fhir import FhirClient
from hilum.domain import FHIR, Document
from hilum.settings import FhirDestination
from tests.support.retrieve.web_server import Reply, reply

PATIENT: Final = "Miller^Ann"
KINDS: Final = ("Device", "ImagingStudy", "DiagnosticReport")
FHIR_JSON: Final = {"Content-Type": "application/fhir+json;charset=utf-8"}
BUNDLE: Final = Document(
    FHIR.key,
    FHIR.media_type,
    json.dumps(
        {
            "resourceType": "Bundle",
            "type": "transaction",
            "entry": [{"resource": {"resourceType": kind}} for kind in KINDS],
        }
    ).encode(),
)


def outcome(severity: str, code: str) -> dict[str, Any]:
    """An OperationOutcome whose text names a patient."""
    issue = {"severity": severity, "code": code, "diagnostics": f"{PATIENT} is unknown"}
    return {"resourceType": "OperationOutcome", "issue": [issue]}


def stored(kind: str, status: str = "201 Created", **more: object) -> dict[str, Any]:
    """The answer on one entry."""
    location = f"{kind}/1/_history/1"
    return {"response": {"status": status, "location": location, **more}}


def failed(status: str, severity: str = "error", code: str = "invalid") -> dict[str, Any]:
    """The answer on an entry that is not stored."""
    return {"response": {"status": status, "outcome": outcome(severity, code)}}


def response(*entries: dict[str, Any], **changes: object) -> Reply:
    """An answer on the entries of `BUNDLE`; by default each is stored."""
    given = list(entries) or [stored(kind) for kind in KINDS]
    return resource(
        {"resourceType": "Bundle", "type": "transaction-response", "entry": given, **changes}
    )


def resource(value: object, status: int = 200) -> Reply:
    """An answer with a resource."""
    return reply(status, json.dumps(value).encode(), FHIR_JSON)


@contextlib.contextmanager
def client_of(root: str, **settings: Any) -> Iterator[FhirClient]:
    """The client of a server."""
    values = {"url": f"{root}/fhir", "timeout_seconds": 20.0, **settings}
    with contextlib.closing(FhirClient("ris", FhirDestination.model_validate(values))) as made:
        yield made
