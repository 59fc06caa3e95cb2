"""A FHIR R4 server in memory: transactions with conditional create, searches by identity.

It is of this project, so it proves that both ends agree, and not that another server does. It reads
the standard strictly where a client could be wrong: references must lead to an entry of the same
Bundle, and a failure of one entry undoes all (R4 3.1.0.11.2).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qsl

FHIR_JSON: Final = "application/fhir+json"
_KINDS: Final = frozenset(
    {"Device", "ImagingStudy", "Observation", "DiagnosticReport", "Provenance"}
)
Json = dict[str, Any]


class RefusedEntry(Exception):
    """Why an entry is not stored: a status, and an issue code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class FhirStore:
    """The resources of a server, by type and id. `refuses`: types that it takes no resource of."""

    def __init__(self, refuses: frozenset[str] = frozenset()) -> None:
        self.resources: dict[str, Json] = {}
        self._refuses = refuses

    def of(self, kind: str) -> list[Json]:
        """Return the resources of a type."""
        return [item for item in self.resources.values() if item["resourceType"] == kind]

    def transact(self, bundle: Json) -> Json:
        """Return the response to a transaction. Raises RefusedEntry, with nothing stored."""
        if bundle.get("resourceType") != "Bundle" or bundle.get("type") != "transaction":
            raise RefusedEntry(400, "structure")
        stored = dict(self.resources)
        urls: dict[str, str] = {}
        answers = [self._create(entry, stored, urls) for entry in bundle["entry"]]
        self.resources = {
            name: json.loads(json.dumps(item), object_hook=lambda found: _resolved(found, urls))
            for name, item in stored.items()
        }
        return {"resourceType": "Bundle", "type": "transaction-response", "entry": answers}

    def _create(self, entry: Json, stored: dict[str, Json], urls: dict[str, str]) -> Json:
        resource = entry["resource"]
        kind = resource["resourceType"]
        request = entry["request"]
        if request["method"] != "POST" or request["url"] != kind or kind not in _KINDS:
            raise RefusedEntry(400, "not-supported")
        if kind in self._refuses:
            raise RefusedEntry(422, "business-rule")
        found = [
            name
            for name, item in stored.items()
            if item["resourceType"] == kind and _matches(item, request["ifNoneExist"])
        ]
        if len(found) > 1:
            raise RefusedEntry(412, "multiple-matches")
        name = found[0] if found else f"{kind}/{len(stored) + 1}"
        stored.setdefault(name, resource)
        if entry["fullUrl"] in urls:
            raise RefusedEntry(400, "invariant")
        urls[entry["fullUrl"]] = name
        return {
            "response": {
                "status": "200 OK" if found else "201 Created",
                "location": f"{name}/_history/1",
            }
        }


def _matches(resource: Json, condition: str) -> bool:
    """Return whether a resource is the one of a search by `identifier` or `_tag`."""
    ((parameter, value),) = parse_qsl(condition, strict_parsing=True)
    system, _, wanted = value.partition("|")
    if parameter == "identifier":
        held = [(each.get("system"), each["value"]) for each in resource.get("identifier", [])]
    elif parameter == "_tag":
        tags = resource.get("meta", {}).get("tag", [])
        held = [(each.get("system"), each["code"]) for each in tags]
    else:
        raise RefusedEntry(400, "not-supported")
    return (system, wanted) in held


def _resolved(found: Json, urls: Mapping[str, str]) -> Json:
    reference = found.get("reference", "")
    if not reference.startswith("urn:uuid:"):
        return found
    if reference not in urls:
        raise RefusedEntry(400, "not-found")
    return {**found, "reference": urls[reference]}


class FhirServer:
    """A store behind HTTP, on a free port of this machine, within a `with` block."""

    def __init__(self, store: FhirStore | None = None) -> None:
        self.store = store or FhirStore()

    @property
    def url(self) -> str:
        """The base of the service."""
        return f"http://127.0.0.1:{self._server.server_port}/fhir"

    def held(self) -> list[str]:
        """Return the identities of the reports that it holds."""
        return [str(item["identifier"][0]["value"]) for item in self.store.of("DiagnosticReport")]

    def __enter__(self) -> Self:
        """Start it."""
        store = self.store

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # head and body in one packet

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path != "/fhir" or self.headers["content-type"] != FHIR_JSON:
                    self._answer(404, _outcome("not-found"))
                    return
                try:
                    self._answer(200, store.transact(json.loads(body)))
                except RefusedEntry as error:
                    self._answer(error.status, _outcome(error.code))

            def do_GET(self) -> None:
                if self.path == "/fhir/metadata":
                    self._answer(200, CAPABILITY)
                else:
                    self._answer(404, _outcome("not-found"))

            def _answer(self, status: int, resource: Json) -> None:
                body = json.dumps(resource).encode()
                self.send_response(status)
                self.send_header("Content-Type", f"{FHIR_JSON};charset=UTF-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

            def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _outcome(code: str) -> Json:
    issue = {"severity": "error", "code": code, "diagnostics": "Miller^Ann is unknown here"}
    return {"resourceType": "OperationOutcome", "issue": [issue]}


CAPABILITY: Final[Json] = {
    "resourceType": "CapabilityStatement",
    "status": "active",
    "fhirVersion": "4.0.1",
    "rest": [{"mode": "server", "interaction": [{"code": "transaction"}]}],
}


def resources_of(bundle: Json) -> Iterator[Json]:
    """Yield the resources of a Bundle."""
    for entry in bundle["entry"]:
        yield entry["resource"]
