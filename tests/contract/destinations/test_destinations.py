"""Every kind of destination, against a real receiver.

A new kind needs a row in `RECEIVERS` beside its rows in the two tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hilum.deliver import DESTINATIONS, probe_destination
from hilum.deliver.webhook_signature import message_id
from hilum.domain import FHIR, HL7, NOTICE, SR, DeliveryJob, DeliveryState, Document
from hilum.errors import Refused, Retry
from hilum.processes.dispatcher import DeliverHandler
from hilum.report import build_documents
from hilum.settings import DESTINATION_KINDS, Settings, describe, restore
from hilum.supervisor.checks.peers import peers
from hilum.withheld_reports import Subject, cause_of
from testing.fhir_server import FhirServer, FhirStore, resources_of
from testing.hl7_receiver import Hl7Receiver
from testing.phantoms.phantom import make_study
from testing.webhook_receiver import section_of
from tests.support.deliver.webhook_receiver import webhook_receiver
from tests.support.hl7.parsed import control_id_of
from tests.support.ledger.dispatching import InThisProcess
from tests.support.peers.archives import orthanc_archive, require_dicomweb
from tests.support.peers.peers import Orthanc, StoreScp, free_port
from tests.support.reports.results import CONTEXT, LEASE, make_release, report_of
from tests.support.server.api_client import open_rig

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
every_kind = pytest.mark.parametrize("kind", list(DESTINATION_KINDS))


@pytest.fixture(scope="module")
def reports() -> Mapping[str, Document]:
    """A document of each kind that a row of RECEIVERS sends."""
    release = make_release()
    job = report_of(make_study(1, views=("PA",), rows=32, columns=32), release)
    kinds = dict.fromkeys(kind.sends for kind in RECEIVERS.values())
    return {item.kind: item for item in build_documents(job, release, CONTEXT, kinds)}


@pytest.fixture
def report(kind: str, reports: Mapping[str, Document]) -> Document:
    return reports[RECEIVERS[kind].sends]


def settings_with(receiver: Receiver, **changes: Any) -> Settings:
    return Settings(destinations={"out": {**receiver.section, **changes}})  # type: ignore[dict-item]


def send(settings: Settings, document: Document, sender: str) -> DeliveryState:
    """Deliver it as the dispatcher does."""
    pipeline = settings.pipeline
    handler = DeliverHandler("out", settings.destinations["out"], InThisProcess(), pipeline)
    job = DeliveryJob(
        lease=LEASE,
        destination="out",
        document=document,
        study_instance_uid="1.2.3",
        release="densenet121@2",
        is_trained=True,
        last_received_at=0.0,
        quiet_until=0.0,
        calling_ae_title=sender,
        peer_address="127.0.0.1",
    )
    try:
        state = asyncio.run(handler.handle(job)).state
    finally:
        handler.close()
    assert isinstance(state, DeliveryState)
    return state


def test_each_kind_has_a_row_in_each_table() -> None:
    assert list(DESTINATION_KINDS) == list(DESTINATIONS) == list(RECEIVERS)
    for name, model in DESTINATION_KINDS.items():
        assert model.model_fields["kind"].default == name


@every_kind
def test_a_document_arrives_once_however_often_it_is_sent(
    kind: str, tmp_path: Path, report: Document
) -> None:
    with RECEIVERS[kind].open(tmp_path) as receiver:
        settings = settings_with(receiver)
        states = [send(settings, report, receiver.sender) for _ in range(2)]
        assert states == [DeliveryState.DELIVERED] * 2
        assert receiver.held() == [RECEIVERS[kind].identity(report)]


@every_kind
def test_a_receiver_that_will_never_take_it_is_a_refusal(
    kind: str, tmp_path: Path, report: Document
) -> None:
    with RECEIVERS[kind].refusing(tmp_path, report) as receiver:
        with pytest.raises(Refused) as caught:
            send(settings_with(receiver), report, receiver.sender)
        assert caught.value.reason
        assert caught.value.detail


@every_kind
def test_a_receiver_that_is_away_is_an_outage(kind: str, tmp_path: Path, report: Document) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    with pytest.raises(Retry) as caught:
        send(settings_with(receiver), report, receiver.sender)
    assert caught.value.is_outage
    assert receiver.held() == []


@every_kind
def test_a_report_of_untrained_weights_is_withheld(kind: str, tmp_path: Path) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    subject = Subject(is_trained=False, calling_ae_title=TITLE, peer_address="127.0.0.1")
    refusing = settings_with(receiver).destinations["out"]
    accepting = settings_with(receiver, accept_untrained=True).destinations["out"]
    cause = cause_of(refusing, subject)
    assert cause is not None
    assert cause.reason == "untrained_weights"
    assert cause_of(accepting, subject) is None


@every_kind
def test_a_probe_leaves_nothing_behind_and_says_what_is_wrong(kind: str, tmp_path: Path) -> None:
    with RECEIVERS[kind].open(tmp_path) as receiver:
        found = probe_destination("out", settings_with(receiver).destinations["out"])
        assert (found.is_ok, found.address) == (True, receiver.address)
        assert receiver.held() == []
    away = RECEIVERS[kind].away(tmp_path)
    found = probe_destination("out", settings_with(away).destinations["out"])
    assert found.is_ok is not RECEIVERS[kind].probe_knows
    assert found.detail


@every_kind
def test_check_says_what_the_probe_says(kind: str, tmp_path: Path) -> None:
    settings = settings_with(RECEIVERS[kind].away(tmp_path))
    found = probe_destination("out", settings.destinations["out"])
    (check,) = peers(settings)
    assert (check.name, check.ok, check.advice) == ("destination out", found.is_ok, found.advice)
    assert found.detail in check.detail


@every_kind
def test_pages_and_rest_show_its_kind_and_its_address(kind: str, tmp_path: Path) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    destinations = settings_with(receiver).destinations
    with open_rig(tmp_path, destinations=destinations) as rig:
        (shown,) = [
            item
            for item in rig.get("/api/v1/destinations")["destinations"]
            if item["name"] == "out"
        ]
        page = rig.client.get("/destinations").text
    assert (shown["kind"], shown["address"]) == (kind, receiver.address)
    assert f"{kind} {receiver.address}" in page


@every_kind
def test_its_settings_survive_the_way_to_a_child_process(kind: str, tmp_path: Path) -> None:
    settings = settings_with(RECEIVERS[kind].away(tmp_path), accept_untrained=True)
    again = restore(settings.dump())
    assert again.destinations == settings.destinations
    assert type(again.destinations["out"]) is DESTINATION_KINDS[kind]


@every_kind
def test_a_setting_of_no_kind_and_one_of_another_kind_are_refused(
    kind: str, tmp_path: Path
) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    own = DESTINATION_KINDS[kind].model_fields
    others = [name for model in DESTINATION_KINDS.values() for name in model.model_fields]
    foreign = next(name for name in others if name not in own)
    for name in ("hots", foreign):
        with pytest.raises(ValidationError, match=f"destinations.out.{name}"):
            settings_with(receiver, **{name: "1"})


@every_kind
def test_the_documentation_describes_each_of_its_settings(kind: str) -> None:
    described = {name: text for name, _, _, text in describe()}
    for name in DESTINATION_KINDS[kind].model_fields:
        assert described[f"destinations.<name>.{name}"]
