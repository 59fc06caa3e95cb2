"""A new kind of destination and a new kind of document are rows, and no other change.

Both are written here, in one place each, and go from the settings to the pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from hilum import deliver, report
from hilum.deliver import Probe, probe_destination
from hilum.domain import DOCUMENT_KINDS, DeliveryState, Document, DocumentKind, ReportJob
from hilum.errors import ConfigurationError
from hilum.receive.headers.patient import Patient
from hilum.services.erase import erase
from hilum.settings import DESTINATION_KINDS, Destination, Settings, describe, load, restore
from hilum.supervisor.checks.peers import peers
from testing.phantoms.phantom import make_study
from tests.support.ledger.dispatching import Dispatcher
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.reports.results import make_release
from tests.support.server.api_client import open_rig

RELEASE = make_release()

# ---- a kind of document: its row, and the function that makes it


NOTE = DocumentKind("note", "Plain note", "text/plain", "txt")


def note(job: ReportJob, *_: Any) -> Document:
    """One line that names the study, and no patient."""
    result = job.result
    content = f"{result.identifiers[NOTE.key]}: {result.outcome}".encode()
    return Document(NOTE.key, NOTE.media_type, content, result_id=result.id)


# ---- a kind of destination: its settings, and its client


class PigeonholeDestination(Destination):
    """The pigeonholes of a department."""

    kind: Literal["pigeonhole"] = "pigeonhole"
    room: str = Field(description="number of the room.")

    @property
    def address(self) -> str:
        """The room."""
        return f"pigeonhole in room {self.room}"


class PigeonholeClient:
    """Puts a document into the pigeonhole of the room."""

    holes: ClassVar[dict[str, list[Document]]] = {}

    def __init__(self, name: str, destination: PigeonholeDestination) -> None:
        self._name = name
        self._destination = destination

    def deliver(self, document: Document) -> None:
        """Put it in."""
        self.holes.setdefault(self._destination.room, []).append(document)

    def probe(self, _limit_seconds: float | None = None) -> Probe:
        """A room with a number exists."""
        is_ok = self._destination.room.isdigit()
        detail = "there is one" if is_ok else "no such room"
        return Probe(self._name, self._destination.address, is_ok=is_ok, detail=detail)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the two kinds."""
    monkeypatch.setitem(DOCUMENT_KINDS, NOTE.key, NOTE)
    monkeypatch.setitem(report.REPORTS, NOTE.key, note)
    monkeypatch.setitem(DESTINATION_KINDS, "pigeonhole", PigeonholeDestination)
    monkeypatch.setitem(deliver.DESTINATIONS, "pigeonhole", PigeonholeClient)
    monkeypatch.setattr(PigeonholeClient, "holes", {})


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """As `hilum serve` reads them: from a file, and one setting from the environment."""
    monkeypatch.setenv("HILUM_DESTINATIONS__WARD__ROOM", "12")
    return load(written(tmp_path, 'kind = "pigeonhole"\ndocuments = ["sr", "note"]\n'))


@pytest.fixture
def dispatcher(settings: Settings) -> Iterator[Dispatcher]:
    with closing(Dispatcher(settings, RELEASE)) as opened:
        yield opened


def written(folder: Path, ward: str) -> Path:
    (folder / "archive" / "locks").mkdir(parents=True, exist_ok=True)
    file = folder / "hilum.toml"
    file.write_text(
        f'[site]\nstate_dir = "{folder}"\n[ledger]\nurl = "{migrated_sqlite(folder)}"\n'
        f'[destinations.archive]\nkind = "folder"\npath = "{folder / "out"}"\n'
        f'documents = ["json", "note"]\n[destinations.ward]\n{ward}'
    )
    return file


def test_both_go_from_the_settings_to_the_receiver(
    settings: Settings, dispatcher: Dispatcher, tmp_path: Path
) -> None:
    (image,) = make_study(7, views=("PA",), rows=32, columns=32)
    study = dispatcher.read(image)
    dispatcher.assemble()
    goes = {new.document.kind: new.destinations for new in dispatcher.report()}
    assert goes == {"sr": ("ward",), "json": ("archive",), "note": ("archive", "ward")}

    states = [advance.state for name in ("ward", "archive") for advance in dispatcher.deliver(name)]

    assert states == [DeliveryState.DELIVERED] * 4
    assert sorted(item.kind for item in PigeonholeClient.holes["12"]) == ["note", "sr"]
    names = {file.suffix: file.name for file in (tmp_path / "out").iterdir()}
    assert names[".txt"] == f"{study}_densenet121@2_r1.txt"
    assert (tmp_path / "out" / names[".txt"]).read_bytes().endswith(b": analysed")


def test_both_are_shown(settings: Settings, dispatcher: Dispatcher, tmp_path: Path) -> None:
    (image,) = make_study(7, views=("PA",), rows=32, columns=32)
    study = dispatcher.read(image)
    dispatcher.assemble()
    dispatcher.report()
    with open_rig(tmp_path, url=settings.ledger_url, destinations=settings.destinations) as rig:
        documents = rig.get(f"/api/v1/studies/{study}/documents")["documents"]
        (row,) = [item for item in documents if item["kind"] == "note"]
        answer = rig.client.get(f"/api/v1/documents/{row['id']}")
        study_page = rig.client.get(f"/studies/{study}").text
        destinations_page = rig.client.get("/destinations").text
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"].endswith('.txt"')
    assert "Plain note" in study_page
    assert "pigeonhole pigeonhole in room 12" in destinations_page


def test_a_patients_note_is_erased_with_the_reports_that_name_the_patient(
    settings: Settings, dispatcher: Dispatcher, tmp_path: Path
) -> None:
    (image,) = make_study(7, views=("PA",), rows=32, columns=32)
    study = dispatcher.read(image)
    dispatcher.assemble()
    dispatcher.report()
    assert erase(settings, Patient(str(image.PatientID))).studies == 1
    assert [dispatcher.deliver(name) for name in settings.destinations] == [[], []]
    assert PigeonholeClient.holes == {}
    with open_rig(tmp_path, url=settings.ledger_url) as rig:
        left = rig.views.documents(study) or []
        assert all(rig.views.document(row["id"])["content"] == b"" for row in left)


def test_check_probe_and_documentation_know_the_destination(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probe_destination("ward", settings.destinations["ward"]).is_ok
    checks = {check.name: check for check in peers(settings)}
    assert checks["destination ward"].detail == "pigeonhole in room 12: there is one"
    assert restore(settings.dump()).destinations == settings.destinations
    described = {name: (kind, text) for name, kind, _, text in describe()}
    assert described["destinations.<name>.room"] == ("text", "pigeonhole: number of the room.")
    assert described["destinations.<name>.kind"][0].endswith(" or pigeonhole")
    assert described["destinations.<name>.documents"][0].endswith(" or note")


@pytest.mark.parametrize(
    ("ward", "said"),
    [
        ('kind = "pigeonhole"\n', "ward.room: Field required"),
        ('kind = "pigeonhole"\nroom = "1"\nhost = "a"\n', "ward.host: only of kind dicom"),
        ('kind = "pigeonhole"\nroom = "1"\nrom = "a"\n', "ward.rom: unknown setting; did you mean"),
        ('kind = "pigeon"\n', "ward.kind: must be dicom or .* or pigeonhole"),
        ('kind = "folder"\npath = "/o"\ndocuments = ["nota"]\n', "no kind of document; did you"),
        ('documents = ["note"]\n', "cannot take 'note', which is no DICOM object"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(tmp_path: Path, ward: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load(written(tmp_path, ward))
