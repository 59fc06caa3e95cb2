"""A FHIR R4 server: transactions with conditional create, searches by identity.

It is of this project, so it proves that both ends agree, and not that another server does. It reads
the standard strictly where a client could be wrong: references must lead to an entry of the same
Bundle, and a failure of one entry undoes all (R4 3.1.0.11.2).
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl

from testing.http_server import HttpServer
from testing.peers import Program
from testing.serving import free_ports

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


Identity = tuple[str, str, str]
"""The type of a resource, a search parameter, and its token `system|value`."""


class FhirStore:
    """The resources of a server, by type and id. `refuses`: types that it takes no resource of.

    `file`: where they are kept, a transaction a line.
    """

    def __init__(self, refuses: frozenset[str] = frozenset(), file: Path | None = None) -> None:
        self.resources: dict[str, Json] = {}
        self._refuses = refuses
        self._index: dict[Identity, list[str]] = {}
        for resources in _transactions(file):
            for name, resource in resources.items():
                self.put(name, resource)
        self._file = file

    def reports(self) -> list[str]:
        """Return the identities of the reports."""
        return [str(item["identifier"][0]["value"]) for item in self.of("DiagnosticReport")]

    def of(self, kind: str) -> list[Json]:
        """Return the resources of a type."""
        return [item for item in self.resources.values() if item["resourceType"] == kind]

    def put(self, name: str, resource: Json) -> None:
        """Hold a resource, as if another client had brought it."""
        self.resources[name] = resource
        for identity in _identities(resource):
            self._index.setdefault(identity, []).append(name)

    def transact(self, bundle: Json) -> Json:
        """Return the response to a transaction. Raises RefusedEntry, with nothing stored."""
        if bundle.get("resourceType") != "Bundle" or bundle.get("type") != "transaction":
            raise RefusedEntry(400, "structure")
        urls: dict[str, str] = {}
        new: dict[str, Json] = {}
        for entry in bundle["entry"]:
            if entry["fullUrl"] in urls:
                raise RefusedEntry(400, "invariant")
            urls[entry["fullUrl"]] = self._place(entry, new)
        resolved = {
            name: json.loads(json.dumps(item), object_hook=lambda found: _resolved(found, urls))
            for name, item in new.items()
        }
        if self._file is not None and resolved:
            with self._file.open("ab") as kept:
                kept.write(b"\n" + json.dumps(resolved).encode() + b"\n")
        for name, item in resolved.items():
            self.put(name, item)
        answers = [_created(name, is_new=name in new) for name in urls.values()]
        return {"resourceType": "Bundle", "type": "transaction-response", "entry": answers}

    def _place(self, entry: Json, new: dict[str, Json]) -> str:
        """Return the name of an entry's resource, which is in `new` if nothing is held of it."""
        resource = entry["resource"]
        kind = resource["resourceType"]
        request = entry["request"]
        if request["method"] != "POST" or request["url"] != kind or kind not in _KINDS:
            raise RefusedEntry(400, "not-supported")
        if kind in self._refuses:
            raise RefusedEntry(422, "business-rule")
        ((parameter, token),) = parse_qsl(request["ifNoneExist"], strict_parsing=True)
        if parameter not in ("identifier", "_tag"):
            raise RefusedEntry(400, "not-supported")
        found = self._index.get((kind, parameter, token), [])
        if len(found) > 1:
            raise RefusedEntry(412, "multiple-matches")
        name = found[0] if found else f"{kind}/{len(self.resources) + len(new) + 1}"
        if not found:
            new[name] = resource
        return name


def _transactions(file: Path | None) -> Iterator[dict[str, Json]]:
    """Yield the resources of each kept transaction, by name."""
    if file is None or not file.exists():
        return
    for line in file.read_bytes().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # half a line of a killed process
            yield json.loads(line or b"{}")


def _identities(resource: Json) -> Iterator[Identity]:
    """Yield the identities by which a search finds a resource."""
    kind = resource["resourceType"]
    for item in resource.get("identifier", []):
        yield kind, "identifier", f"{item.get('system', '')}|{item['value']}"
    for item in resource.get("meta", {}).get("tag", []):
        yield kind, "_tag", f"{item.get('system', '')}|{item['code']}"


def _created(name: str, *, is_new: bool) -> Json:
    status = "201 Created" if is_new else "200 OK"
    return {"response": {"status": status, "location": f"{name}/_history/1"}}


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
        return base_of(self._server.port)

    def held(self) -> list[str]:
        """Return the identities of the reports that it holds."""
        return self.store.reports()

    def __enter__(self) -> Self:
        """Start it."""
        self._server = HttpServer(handler_of(self.store))
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop it."""
        self._server.stop()


class FhirProgram(Program):
    """The same server as a process, which keeps its resources in a file."""

    _port = 0

    @property
    def port(self) -> int:
        """Its port."""
        return self._port

    def held(self) -> list[str]:
        """Return the identities of the reports that it holds."""
        return FhirStore(file=self._file).reports()

    def __enter__(self) -> Self:
        """Start it on a free port."""
        (self._port,) = free_ports(1)
        words = ["-m", "testing.fhir_server", str(self._port), str(self._file)]
        self._start([sys.executable, *words], self._port)
        return self

    @property
    def _file(self) -> Path:
        return self.folder / "resources.jsonl"


def base_of(port: int) -> str:
    """The base of the service at a port."""
    return f"http://127.0.0.1:{port}/fhir"


def handler_of(store: FhirStore) -> type[BaseHTTPRequestHandler]:
    """The handler of connections to a store."""
    lock = threading.Lock()

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
                with lock:
                    answer = store.transact(json.loads(body))
            except RefusedEntry as error:
                self._answer(error.status, _outcome(error.code))
            else:
                self._answer(200, answer)

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

    return Handler


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


if __name__ == "__main__":
    ThreadingHTTPServer(
        ("127.0.0.1", int(sys.argv[1])), handler_of(FhirStore(file=Path(sys.argv[2])))
    ).serve_forever()
