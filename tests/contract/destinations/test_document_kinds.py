"""Every kind of document: minted, made, stored, named, sent, shown and erased.

A new kind needs a row in `MADE` beside its rows in the two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from hilum.domain import (
    DOCUMENT_KINDS,
    FHIR,
    GSPS,
    HEAT_MAP,
    HL7,
    JSON,
    NOTICE,
    PDF,
    SHEET,
    SR,
    SR_CLASS_PREFERENCE,
    TEXT_SR,
    DeliveryState,
    Document,
    DocumentKind,
    Made,
    ReportJob,
    kind_of,
    orderable_kinds,
)
from hilum.receive.headers.patient import OneStudy, Patient
from hilum.report import (
    RENDERED,
    REPORTS,
    HeatMapSources,
    Picture,
    build_documents,
    build_report,
    derive,
)
from hilum.services.erase import erase
from hilum.settings import DicomDestination, FolderDestination, Settings, describe
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive
from testing.phantoms.phantom import make_study, save
from tests.support.ledger.dispatching import Dispatcher
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.reports.heat_maps import MAXIMUM_PIXELS, maps_of
from tests.support.reports.results import CONTEXT, LOGITS, make_release, parse
from tests.support.server.api_client import open_rig

RELEASE = make_release(has_cam=True)
OUT = "out"


def built(job: ReportJob, _folder: Path, kind: str) -> Document:
    (document,) = build_documents(job, RELEASE, CONTEXT, (kind,))
    return document


def derived(job: ReportJob, folder: Path, kind: str) -> Document:
    (wanted,) = [item for item in SR_CLASS_PREFERENCE if item.kind == kind]
    return derive(built(job, folder, SR.key), wanted, job.result.identifiers[kind])


def drawn(job: ReportJob, folder: Path, kind: str) -> Document:
    from hilum.domain import ActivationMaps

    cam = ActivationMaps(LOGITS, maps_of(len(RELEASE.labels)).tobytes())
    (image,) = make_study(7, views=("PA",), rows=64, columns=64)
    pictures = {str(image.SOPInstanceUID): Picture(save(image, folder / "image.dcm"), cam)}
    sources = HeatMapSources(pictures, MAXIMUM_PIXELS)
    return build_report(job, RELEASE, CONTEXT, (kind,), sources).documents[-1]


MADE: Mapping[str, Callable[[ReportJob, Path, str], Document]] = {
    SR.key: built,
    **{item.kind: derived for item in SR_CLASS_PREFERENCE[1:]},
    JSON.key: built,
    HEAT_MAP.key: drawn,
    SHEET.key: drawn,
    PDF.key: drawn,
    TEXT_SR.key: drawn,
    GSPS.key: drawn,
    HL7.key: built,
    NOTICE.key: built,
    FHIR.key: built,
}
every_kind = pytest.mark.parametrize(
    "kind", list(DOCUMENT_KINDS.values()), ids=lambda kind: kind.key
)


class Installation:
    """A ledger with one study, and one document of a kind for a folder."""

    def __init__(self, folder: Path, kind: DocumentKind) -> None:
        self.folder = folder
        (folder / "archive" / "locks").mkdir(parents=True)
        self.settings = Settings(
            site={"state_dir": folder},  # type: ignore[arg-type]
            ledger={"url": migrated_sqlite(folder)},  # type: ignore[arg-type]
            destinations={OUT: FolderDestination(path=folder / "out")},
        )
        (image,) = make_study(7, views=("PA",), rows=64, columns=64)
        self.patient = str(image.PatientID)
        self.dispatcher = Dispatcher(self.settings, RELEASE)
        self.study = self.dispatcher.read(image)
        self.dispatcher.assemble()
        self.document = self.dispatcher.store(
            lambda job: MADE[kind.key](job, folder, kind.key), (OUT,)
        )

    def files(self) -> list[Path]:
        """What the folder got."""
        return sorted((self.folder / "out").glob("*"))


@pytest.fixture
def here(tmp_path: Path, kind: DocumentKind) -> Iterator[Installation]:
    installation = Installation(tmp_path, kind)
    with closing(installation.dispatcher):
        yield installation


def test_each_kind_has_a_row_in_each_table() -> None:
    assert list(DOCUMENT_KINDS) == list(MADE)
    assert all(key == kind.key for key, kind in DOCUMENT_KINDS.items())
    made_by_result = {kind.key for kind in DOCUMENT_KINDS.values() if kind.made is not Made.DERIVED}
    assert made_by_result == {*REPORTS, *RENDERED, HEAT_MAP.key}


def test_every_result_has_a_document_by_which_erasure_finds_its_patient() -> None:
    assert any(kind.names_patient for kind in DOCUMENT_KINDS.values() if kind.made is Made.ALWAYS)


@every_kind
def test_its_uids_are_minted_with_the_result(here: Installation, kind: DocumentKind) -> None:
    with open_rig(here.folder, url=here.settings.ledger_url) as rig:
        detail = rig.views.study(here.study)
    assert detail is not None
    document = here.document
    assert document.kind == kind.key
    assert document.media_type == kind.media_type
    assert (document.sop_instance_uid is not None) is kind.is_dicom
    if kind.is_dicom:
        written = parse(document.content)
        assert written.SOPInstanceUID == document.sop_instance_uid
        assert written.SeriesInstanceUID == document.series_instance_uid


@every_kind
def test_series_are_shared_with_the_kind_it_is_derived_from(kind: DocumentKind) -> None:
    origin = DOCUMENT_KINDS[kind.origin] if kind.origin else kind
    assert kind.series == (f"{origin.key}_series" if kind.is_dicom else "")
    assert kind.media_type == origin.media_type


@every_kind
def test_a_folder_gets_it_under_its_suffix(here: Installation, kind: DocumentKind) -> None:
    (advance,) = here.dispatcher.deliver(OUT)
    assert advance.state is DeliveryState.DELIVERED
    (file,) = here.files()
    assert file.name.endswith(f".{kind.suffix}")
    assert file.read_bytes() == here.document.content
    assert (here.document.sop_instance_uid or here.study) in file.name


@every_kind
def test_rest_gives_its_bytes_and_pages_its_label(here: Installation, kind: DocumentKind) -> None:
    with open_rig(here.folder, url=here.settings.ledger_url) as rig:
        (row,) = rig.get(f"/api/v1/studies/{here.study}/documents")["documents"]
        answer = rig.client.get(f"/api/v1/documents/{row['id']}")
        page = rig.client.get(f"/studies/{here.study}").text
    assert answer.content == here.document.content
    assert answer.headers["content-type"] == kind.media_type
    assert answer.headers["content-disposition"].endswith(f'.{kind.suffix}"')
    assert kind.label in page
    assert (f"/documents/{row['id']}.png" in page) is kind.is_picture


@every_kind
def test_erasure_searches_it_if_it_names_the_patient(
    here: Installation, kind: DocumentKind
) -> None:
    archive = Archive(here.settings.archive_dir)
    erasure = Erasure(here.settings.ledger_url, archive)
    with closing(erasure):
        searched = list(erasure.documents())
    assert bool(searched) is kind.names_patient
    if kind.names_patient:
        assert here.patient.encode() in here.document.content


@every_kind
@pytest.mark.parametrize("is_by_patient", [True, False])
def test_erasure_empties_it_and_it_is_never_sent(
    here: Installation, kind: DocumentKind, is_by_patient: bool
) -> None:
    owner = Patient(here.patient) if is_by_patient else OneStudy(here.study)
    report = erase(here.settings, owner)
    assert report.studies == 1
    assert here.dispatcher.deliver(OUT) == []
    assert here.files() == []
    with open_rig(here.folder, url=here.settings.ledger_url) as rig:
        left = rig.views.documents(here.study) or []
        assert [row["kind"] for row in left if rig.views.document(row["id"])["content"]] == []


@every_kind
def test_only_its_own_kinds_of_destination_take_it(kind: DocumentKind) -> None:
    if kind.made is Made.DERIVED:
        with pytest.raises(ValueError, match="no kind of document"):
            FolderDestination(path=Path("out"), documents=(kind.key,))
        return
    assert FolderDestination(path=Path("out"), documents=(kind.key,)).documents == (kind.key,)
    if kind.is_dicom:
        assert DicomDestination(documents=(kind.key,)).documents == (kind.key,)
    else:
        with pytest.raises(ValueError, match="no DICOM object"):
            DicomDestination(documents=(kind.key,))


def test_the_documentation_names_what_a_destination_may_ask_for() -> None:
    (type_name,) = [kind for name, kind, _, _ in describe() if name.endswith("<name>.documents")]
    assert type_name == f"list of {' or '.join(orderable_kinds())}"


def test_a_kind_of_another_version_stands_for_itself() -> None:
    found = kind_of("fhir_bundle")
    assert (found.label, found.suffix, found.is_dicom) == ("fhir bundle", "bin", False)
