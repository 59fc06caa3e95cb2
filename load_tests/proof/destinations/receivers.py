"""A real receiver of each kind, behind a relay; and what it holds."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import httpx
import pydicom

from hilum.deliver.webhook_signature import message_id
from hilum.domain import FHIR, HL7, NOTICE
from load_tests.proof.destinations.dialects import (
    Dialect,
    Dimse,
    Held,
    Http,
    Mllp,
    control_id_of,
    digest_of,
)
from load_tests.proof.destinations.relay import Relay
from load_tests.proof.evidence import digest_of_object
from load_tests.proof.small_disk import may_mount, small_disk
from testing.fhir_server import FhirProgram, base_of, resources_of
from testing.hl7_receiver import Hl7Receiver
from testing.peers import DICOMWEB_PLUGIN, Orthanc, Program, StoreScp
from testing.webhook_receiver import WebhookReceiver, is_installed, section_of

TITLE: Final = "MODALITY"
_TIMEOUT_SECONDS: Final = 2.0
_DISK_MIB: Final = 8


@dataclass(frozen=True, slots=True)
class Receiver:
    """A destination's table, and what is at its other end.

    `held`: each copy that it holds. `relay` and `program`: None for a folder. `folder`: its own.
    """

    section: Mapping[str, Any]
    held: Callable[[], list[Held]]
    folder: Path
    relay: Relay | None = None
    program: Program | None = None


def held_of(kind: str, content: bytes) -> Held:
    """The identity of a stored document at its receiver, by the kind of the document."""
    if kind == HL7.key:
        return Held(control_id_of(content), digest_of(content))
    if kind == NOTICE.key:
        return Held(message_id(content), digest_of(content))
    if kind == FHIR.key:
        return _bundle(content)
    return _object(content)


def _object(content: bytes) -> Held:
    found = pydicom.dcmread(BytesIO(content), specific_tags=["SOPInstanceUID"])
    return Held(str(found.SOPInstanceUID), digest_of_object(content))


def _bundle(content: bytes) -> Held:
    """A FHIR server changes what it stores, so its content is what was sent."""
    (report,) = [
        item
        for item in resources_of(json.loads(content))
        if item["resourceType"] == "DiagnosticReport"
    ]
    return Held(str(report["identifier"][0]["value"]), digest_of(content))


def _part(_fields: Mapping[str, str], body: bytes) -> Held:
    """The one object of a request of STOW-RS."""
    content = body.partition(b"\r\n\r\n")[2].rpartition(b"\r\n--")[0]
    return _object(content)


def _notice(fields: Mapping[str, str], body: bytes) -> Held:
    return Held(fields["webhook-id"], digest_of(body))


@contextlib.contextmanager
def _dicom(folder: Path, place: Callable[[int], Mapping[str, Any]]) -> Iterator[Receiver]:
    with StoreScp(folder / "pacs") as peer, _relay(Dimse(), peer.settings["port"]) as relay:
        received = peer.folder / "received"
        held = partial(_files, received, "*")
        yield Receiver(place(relay.port), held, folder, relay, peer)


def _by_address(port: int) -> Mapping[str, Any]:
    return {"kind": "dicom", "host": "127.0.0.1", "port": port, "ae_title": "STORESCP"}


def _by_sender(port: int) -> Mapping[str, Any]:
    return {"kind": "sender", "ports": {TITLE: port}}


@contextlib.contextmanager
def _stow(folder: Path) -> Iterator[Receiver]:
    with (
        Orthanc(folder / "pacs", dicomweb=True) as peer,
        _relay(Http(_part), peer.http_port) as relay,
    ):
        section = {"kind": "stow", "url": f"http://127.0.0.1:{relay.port}/dicom-web"}
        yield Receiver(section, partial(_instances, peer.http_port), folder, relay, peer)


def _instances(port: int) -> list[Held]:
    root = f"http://127.0.0.1:{port}/instances"
    with httpx.Client(timeout=20) as client:
        names = client.get(root).json()
        return [_object(client.get(f"{root}/{name}/file").content) for name in names]


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[Receiver]:
    """On a small file system of its own, where this user may mount one."""
    disk = folder / "disk"
    path = disk / "mount" / "out"
    with small_disk(disk, _DISK_MIB) if may_mount() else contextlib.nullcontext():
        path.parent.mkdir(parents=True)  # Hilum makes the last part alone
        yield Receiver({"kind": "folder", "path": str(path)}, partial(_files, path, "*.dcm"), disk)


def _files(folder: Path, pattern: str) -> list[Held]:
    return [_object(path.read_bytes()) for path in folder.glob(pattern)]


@contextlib.contextmanager
def _webhook(folder: Path) -> Iterator[Receiver]:
    with (
        WebhookReceiver(folder / "program") as peer,
        _relay(Http(_notice, is_receipt_by_status=True), peer.port) as relay,
    ):
        received = peer.folder / "received"

        def held() -> list[Held]:
            return [Held(path.name, digest_of(path.read_bytes())) for path in received.iterdir()]

        yield Receiver(section_of(relay.port, folder), held, folder, relay, peer)


@contextlib.contextmanager
def _hl7(folder: Path) -> Iterator[Receiver]:
    with Hl7Receiver(folder / "ris") as peer, _relay(Mllp(), peer.port) as relay:

        def held() -> list[Held]:
            return [Held(name, digest_of(peer.message(name))) for name in peer.held()]

        section = {"kind": "hl7", "host": "127.0.0.1", "port": relay.port}
        yield Receiver(section, held, folder, relay, peer)


@contextlib.contextmanager
def _fhir(folder: Path) -> Iterator[Receiver]:
    def bundle(_fields: Mapping[str, str], body: bytes) -> Held:
        return _bundle(body)

    with FhirProgram(folder / "server") as peer, _relay(Http(bundle), peer.port) as relay:

        def held() -> list[Held]:
            return [Held(name, "") for name in peer.held()]

        yield Receiver({"kind": "fhir", "url": base_of(relay.port)}, held, folder, relay, peer)


@contextlib.contextmanager
def _relay(dialect: Dialect, port: int) -> Iterator[Relay]:
    with Relay(dialect, port) as relay:
        yield relay


RECEIVERS: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[Receiver]]] = {
    "dicom": lambda folder: _dicom(folder, _by_address),
    "sender": lambda folder: _dicom(folder, _by_sender),
    "folder": _folder,
    "stow": _stow,
    "webhook": _webhook,
    "hl7": _hl7,
    "fhir": _fhir,
}
"""By the kind of the destination."""


@contextlib.contextmanager
def opened(kind: str, folder: Path) -> Iterator[Receiver]:
    """A receiver of a kind, with a folder of its own."""
    folder.mkdir(parents=True)
    with RECEIVERS[kind](folder) as receiver:
        limit = {} if receiver.relay is None else {"timeout_seconds": _TIMEOUT_SECONDS}
        section = {**receiver.section, **limit, "accept_untrained": True}
        yield replace(receiver, section=section)


def missing() -> list[str]:
    """What has to be installed for the receivers, and is not."""
    found = {
        "storescp of DCMTK": shutil.which("storescp"),
        "Orthanc": Orthanc.program(),
        "Orthanc's plug-in for DICOMweb": DICOMWEB_PLUGIN.exists(),
        "standardwebhooks in .venv/peers (make test)": is_installed(),
    }
    return [name for name, there in found.items() if not there]
