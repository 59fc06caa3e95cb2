"""A real receiver for each kind of destination, and one that refuses or is away."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilum.deliver.webhook_signature import message_id
from hilum.domain import FHIR, HL7, NOTICE, SR, Document
from testing.fhir_server import FhirServer, FhirStore, resources_of
from testing.hl7_receiver import Hl7Receiver
from testing.webhook_receiver import section_of
from tests.support.deliver.webhook_receiver import webhook_receiver
from tests.support.hl7.parsed import control_id_of
from tests.support.peers.archives import orthanc_archive, require_dicomweb
from tests.support.peers.peers import Orthanc, StoreScp, free_port

TITLE = "CR1"
STRANGER = "STRANGER"


@dataclass(frozen=True)
class Receiver:
    """A real receiver: its section of the settings, and the identities of what it holds."""

    section: dict[str, Any]
    held: Callable[[], list[str]]
    address: str
    sender: str = TITLE


@dataclass(frozen=True)
class Kind:
    """Receivers of one kind, each in the state that its name says.

    `refusing`: it will never take the document. `away`: nothing is there. `probe_knows`: a probe
    finds out that it is away. `sends`: the kind of document that goes there. `identity`: by which
    the receiver knows it again.
    """

    open: Callable[[Path], contextlib.AbstractContextManager[Receiver]]
    refusing: Callable[[Path, Document], contextlib.AbstractContextManager[Receiver]]
    away: Callable[[Path], Receiver]
    probe_knows: bool = True
    sends: str = SR.key
    identity: Callable[[Document], str] = lambda document: str(document.sop_instance_uid)


def _stored(peer: StoreScp) -> list[str]:
    return [path.name.partition(".")[2] for path in peer.files()]


def _by_address(port: int) -> tuple[dict[str, Any], str]:
    section = {"host": "127.0.0.1", "port": port, "ae_title": "STORESCP", "timeout_seconds": 5.0}
    return section, f"STORESCP@127.0.0.1:{port}"


def _by_sender(port: int) -> tuple[dict[str, Any], str]:
    section = {"kind": "sender", "ports": {TITLE: port}, "timeout_seconds": 5.0}
    return section, "the sender of each study"


def _peer(
    place: Callable[[int], tuple[dict[str, Any], str]], **options: Any
) -> contextlib.AbstractContextManager[Receiver]:
    @contextlib.contextmanager
    def started() -> Iterator[Receiver]:
        with StoreScp(**options) as peer:
            section, address = place(peer.port)
            yield Receiver(section, lambda: _stored(peer), address)

    return started()


def _folder(path: Path) -> Receiver:
    def held() -> list[str]:
        return [file.stem for file in path.glob("*.dcm")] if path.exists() else []

    return Receiver({"kind": "folder", "path": str(path)}, held, str(path))


@contextlib.contextmanager
def _refusing_folder(path: Path, document: Document) -> Iterator[Receiver]:
    path.mkdir()
    (path / document.file_name).write_bytes(b"the work of a person")
    yield _folder(path)


@contextlib.contextmanager
def _unknown_sender(_path: Path, _document: Document) -> Iterator[Receiver]:
    section, address = _by_sender(free_port())
    yield Receiver(section, list, address, STRANGER)


def _down(place: Callable[[int], tuple[dict[str, Any], str]]) -> Receiver:
    section, address = place(free_port())
    return Receiver(section, list, address)


def _by_url(port: int) -> dict[str, Any]:
    return {"kind": "stow", "url": f"http://127.0.0.1:{port}/dicom-web", "timeout_seconds": 5.0}


def _uids_of(orthanc: Orthanc) -> list[str]:
    return [
        orthanc.get(f"/instances/{identifier}/simplified-tags")["SOPInstanceUID"]
        for identifier in orthanc.instances()
    ]


@contextlib.contextmanager
def _dicomweb(**settings: Any) -> Iterator[Receiver]:
    require_dicomweb()
    with orthanc_archive(dicomweb=True, **settings) as orthanc:
        section = _by_url(orthanc.http_port)
        yield Receiver(section, lambda: _uids_of(orthanc), section["url"])


@contextlib.contextmanager
def _forbidding_dicomweb(folder: Path, _document: Document) -> Iterator[Receiver]:
    """An Orthanc that answers queries and forbids to store."""
    script = folder / "forbid.lua"
    script.write_text(
        "function IncomingHttpRequestFilter(method, uri, ip, username, httpHeaders)\n"
        '  return method ~= "POST"\nend\n',
        encoding="ascii",
    )
    with _dicomweb(LuaScripts=[str(script)]) as receiver:
        yield receiver


def _no_dicomweb(_path: Path) -> Receiver:
    section = _by_url(free_port())
    return Receiver(section, list, section["url"])


@contextlib.contextmanager
def _hl7(path: Path, answer: str = "AA") -> Iterator[Receiver]:
    with Hl7Receiver(path / "ris", answer) as peer:
        yield Receiver(dict(peer.settings), peer.held, f"127.0.0.1:{peer.port}")


def _no_hl7(_path: Path) -> Receiver:
    port = free_port()
    section = {"kind": "hl7", "host": "127.0.0.1", "port": port}
    return Receiver(section, list, f"127.0.0.1:{port}")


@contextlib.contextmanager
def _webhook(path: Path, status: int = 204) -> Iterator[Receiver]:
    with webhook_receiver(path / "program", status) as peer:
        yield Receiver(dict(peer.settings), peer.held, f"http://127.0.0.1:{peer.port}")


def _no_webhook(path: Path) -> Receiver:
    port = free_port()
    return Receiver(dict(section_of(port, path)), list, f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def _fhir(refuses: frozenset[str] = frozenset()) -> Iterator[Receiver]:
    with FhirServer(FhirStore(refuses)) as peer:
        yield Receiver({"kind": "fhir", "url": peer.url}, peer.held, peer.url)


def _no_fhir(_path: Path) -> Receiver:
    url = f"http://127.0.0.1:{free_port()}/fhir"
    return Receiver({"kind": "fhir", "url": url}, list, url)


def _report_of(document: Document) -> str:
    (report,) = [
        item
        for item in resources_of(json.loads(document.content))
        if item["resourceType"] == "DiagnosticReport"
    ]
    return str(report["identifier"][0]["value"])


RECEIVERS: Mapping[str, Kind] = {
    "dicom": Kind(
        lambda _: _peer(_by_address),
        lambda _path, _document: _peer(_by_address, refuse_sr=True),
        lambda _: _down(_by_address),
    ),
    "folder": Kind(
        lambda path: contextlib.nullcontext(_folder(path / "out")),
        lambda path, document: _refusing_folder(path / "out", document),
        lambda path: _folder(path / "not mounted" / "out"),
    ),
    "sender": Kind(
        lambda _: _peer(_by_sender),
        _unknown_sender,
        lambda _: _down(_by_sender),
        probe_knows=False,
    ),
    "stow": Kind(lambda _: _dicomweb(), _forbidding_dicomweb, _no_dicomweb),
    "hl7": Kind(
        _hl7,
        lambda path, _document: _hl7(path, "AE"),
        _no_hl7,
        sends=HL7.key,
        identity=control_id_of,
    ),
    "webhook": Kind(
        _webhook,
        lambda path, _document: _webhook(path, 422),
        _no_webhook,
        sends=NOTICE.key,
        identity=lambda document: message_id(document.content),
    ),
    "fhir": Kind(
        lambda _: _fhir(),
        lambda _path, _document: _fhir(frozenset({"Observation"})),
        _no_fhir,
        sends=FHIR.key,
        identity=_report_of,
    ),
}
