"""The result sheet, its PDF and the text report: valid, readable by foreign programs, of the study."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import JPEGBaseline8Bit

from hilum.deliver.cstore import DicomClient
from hilum.domain import (
    BASIC_TEXT,
    DOCUMENT_KINDS,
    Document,
    ImageReason,
    ReadingState,
    Release,
    ReportJob,
)
from hilum.report import HeatMapSources, build_report, derive
from hilum.settings import DicomDestination
from testing.phantoms.phantom import make_study
from tests.support.peers.peers import Orthanc
from tests.support.reports import sr_gate
from tests.support.reports.heat_maps import explained
from tests.support.reports.read_back import lines_in_text
from tests.support.reports.results import (
    CONTEXT,
    instance_of,
    make_release,
    parse,
    reading_of,
    report_job,
    results_of,
    study_job,
)
from tests.support.reports.validators import complaints, output_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
ORDERED = ("sheet", "pdf", "text_sr")
KINDS = ("sr", "json", *ORDERED)
GERMAN = dataclasses.replace(
    CONTEXT,
    site_name="Universitätsklinikum Zürich",
    disclaimer="KI-Ergebnis, nicht ärztlich geprüft. <Nur> für Forschung & Lehre.",
)
TEMPERATURE = {"method": "temperature", "temperature": 1.3}
STUDIES: Mapping[str, tuple[Release, dict[str, object]]] = {
    "dx with maps": (make_release(has_cam=True), {"modality": "DX", "views": ("PA",)}),
    "cr two untrained": (
        make_release(is_trained=False),
        {"modality": "CR", "views": ("PA", "LATERAL")},
    ),
    "dx monochrome1 jpeg": (
        make_release(calibration=TEMPERATURE),
        {
            "modality": "DX",
            "views": ("PA",),
            "photometric": "MONOCHROME1",
            "transfer_syntax_uid": JPEGBaseline8Bit,
            "bits": 8,
        },
    ),
    "cr not analysed": (make_release(), {"modality": "CR", "views": ("PA", "AP")}),
}


@dataclass(frozen=True)
class Written:
    """The documents of one study as files, and their job."""

    folder: Path
    job: ReportJob
    sources: list[Path]

    def path(self, kind: str) -> Path:
        return self.folder / f"{kind}.dcm"

    def read(self, kind: str) -> Dataset:
        return dcmread(self.path(kind))

    def pdf(self) -> Path:
        """The PDF as the receiver gets it out of the object."""
        written, found = self.read("pdf"), self.folder / "sheet.pdf"
        found.write_bytes(written.EncapsulatedDocument[: written.EncapsulatedDocumentLength])
        return found


def not_analysed(datasets: list[Dataset], release: Release) -> ReportJob:
    instances = [instance_of(item, number) for number, item in enumerate(datasets, 1)]
    constant = {
        "state": ReadingState.NOT_ANALYSED,
        "logits": None,
        "reason": ImageReason.CONSTANT_IMAGE.value,
    }
    readings = [reading_of(item, release, **constant) for item in instances]
    return report_job(instances, results_of(study_job(instances, readings), release)[0])


def write(folder: Path, name: str) -> Written:
    release, study = STUDIES[name]
    datasets = make_study(21, rows=120, columns=96, **study)
    job, sources = explained(datasets, release, folder)
    if name == "cr not analysed":
        job = not_analysed(datasets, release)
    for document in build_report(job, release, GERMAN, KINDS, sources).documents:
        (folder / f"{document.kind}.dcm").write_bytes(document.content)
    return Written(folder, job, sorted(folder.glob("stored*.dcm")))


@pytest.fixture(scope="module", params=STUDIES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(tmp_path_factory.mktemp("sheets"), request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Two images of untrained weights."""
    return write(tmp_path_factory.mktemp("plain"), "cr two untrained")


def test_validators_find_nothing(written: Written) -> None:
    for kind in ORDERED:
        assert complaints("dciodvfy", written.path(kind)) == []
    beside = [written.path(kind) for kind in ("sr", *ORDERED)]
    assert complaints("dcentvfy", *written.sources, *beside) == []
    named = [written.path("sheet")] if explanations(written.read("text_sr")) else []
    sr_gate.assert_clean(written.path("text_sr"), [*written.sources, *named], sr_gate.TEXT)


def test_validators_see_a_damaged_pdf(plain: Written, tmp_path: Path) -> None:
    damaged = plain.read("pdf")
    del damaged.MIMETypeOfEncapsulatedDocument
    damaged.PatientID = "OTHER"
    damaged.save_as(tmp_path / "damaged.dcm")
    assert complaints("dciodvfy", tmp_path / "damaged.dcm")
    assert complaints("dcentvfy", *plain.sources, tmp_path / "damaged.dcm")


def stored(plain: Written, kind: str) -> Document:
    """As the ledger has it."""
    dataset = plain.read(kind)
    return Document(
        kind,
        DOCUMENT_KINDS[kind].media_type,
        plain.path(kind).read_bytes(),
        str(dataset.SOPClassUID),
        str(dataset.SOPInstanceUID),
        str(dataset.SeriesInstanceUID),
    )


PATIENT_MODULE = ("PatientName", "PatientID", "PatientBirthDate", "PatientSex")
STUDY_MODULE = ("StudyInstanceUID", "StudyDate", "StudyTime", "AccessionNumber", "StudyID")


def test_patient_and_study_are_those_of_the_image_byte_for_byte(written: Written) -> None:
    image = dcmread(written.sources[0])
    for kind in ORDERED:
        document = written.read(kind)
        for keyword in (*PATIENT_MODULE, *STUDY_MODULE):
            found, wanted = (_encoded(item, keyword) for item in (document, image))
            assert found == wanted, f"{kind}: {keyword}"


def _encoded(dataset: Dataset, keyword: str) -> bytes:
    """The value as it stands in the file; each file is in Explicit VR Little Endian."""
    raw = dataset.get_item(keyword)
    assert raw is not None
    return bytes(raw.value)


def test_dcmtk_gives_back_the_pixels(written: Written, tmp_path: Path) -> None:
    output_of(
        "dcmtk", "dcmj2pnm", "--write-raw-pnm", str(written.path("sheet")), str(tmp_path / "s.ppm")
    )
    with Image.open(tmp_path / "s.ppm") as picture:
        assert np.array_equal(np.asarray(picture), written.read("sheet").pixel_array)


def test_dcmtk_and_poppler_give_back_the_text(written: Written, tmp_path: Path) -> None:
    output_of("dcmtk", "dcm2pdf", str(written.path("pdf")), str(tmp_path / "out.pdf"))
    assert (tmp_path / "out.pdf").read_bytes().rstrip(b"\0") == written.pdf().read_bytes()
    said = " ".join(
        output_of("poppler-utils", "pdftotext", "-layout", str(tmp_path / "out.pdf"), "-").split()
    )
    result = written.job.result
    assert "NOT FOR DIAGNOSIS" in said
    assert "Universitätsklinikum Zürich" in said
    assert "nicht ärztlich geprüft. <Nur> für Forschung & Lehre." in said
    assert result.study_instance_uid in said
    assert ("Not analysed (constant_image)" in said) is not result.findings
    for finding in result.findings:
        assert re.search(rf"{finding.text} {finding.score:.3f}", said), finding.text


def test_poppler_sets_each_page_with_embedded_fonts_alone(written: Written, tmp_path: Path) -> None:
    fonts = output_of("poppler-utils", "pdffonts", str(written.pdf())).splitlines()[2:]
    assert fonts
    assert all(re.search(r"TrueType +\S+ +yes yes yes", line) for line in fonts)
    output_of(
        "poppler-utils", "pdftoppm", "-r", "40", "-png", str(written.pdf()), str(tmp_path / "p")
    )
    (page,) = tmp_path.glob("p*.png")
    assert np.asarray(Image.open(page)).min() < 100


def test_the_pdf_has_the_time_of_the_result_and_no_other(plain: Written) -> None:
    assert set(re.findall(rb"D:\d{14}", plain.pdf().read_bytes())) == {b"D:20260921141320"}


def test_no_name_and_no_patient_id_stand_in_the_text(written: Written) -> None:
    image = dcmread(written.sources[0])
    said = output_of("poppler-utils", "pdftotext", str(written.pdf()), "-")
    names = {part for part in re.split(r"[\^= ]", str(image.PatientName)) if len(part) > 2}
    assert not [part for part in (*names, str(image.PatientID)) if part in said]


def test_built_again_in_a_process_of_many_they_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    release = make_release(has_cam=True)
    job, sources = explained(make_study(25, "CR", ("PA",), rows=64, columns=64), release, tmp_path)
    (tmp_path / "other").mkdir()
    other = explained(
        make_study(26, "CR", ("AP",), rows=64, columns=64), release, tmp_path / "other"
    )
    first, between, second = (
        build_report(one, release, CONTEXT, KINDS, its)
        for one, its in ((job, sources), other, (job, sources))
    )
    assert first == second != between


@pytest.mark.parametrize(
    ("kind", "number", "modality"),
    [("sheet", 9004, "OT"), ("pdf", 9005, "DOC"), ("text_sr", 9006, "SR")],
)
def test_each_has_a_series_of_its_own(
    plain: Written, kind: str, number: int, modality: str
) -> None:
    written, identifiers = plain.read(kind), plain.job.result.identifiers
    assert (written.SeriesNumber, written.InstanceNumber, written.Modality) == (number, 1, modality)
    assert written.SOPInstanceUID == identifiers[kind]
    assert written.SeriesInstanceUID == identifiers[f"{kind}_series"]
    assert (written.Manufacturer, written.DeviceSerialNumber) == ("Hilum project", "installation-1")
    (equipment,) = [item for item in written.ContributingEquipmentSequence if "DeviceUID" in item]
    assert (equipment.ManufacturerModelName, equipment.SoftwareVersions) == ("densenet121", "2")


@pytest.mark.parametrize("kind", ["sheet", "pdf"])
def test_the_attributes_say_that_it_is_for_no_diagnosis(plain: Written, kind: str) -> None:
    written = plain.read(kind)
    assert (
        written.SeriesDescription
        == "AI result, not for diagnosis, den~21@2 (uncalibrated, untrained)"
    )
    assert (written.BurnedInAnnotation, written.ConversionType) == ("YES", "WSD")
    named = written.SourceImageSequence if kind == "sheet" else written.SourceInstanceSequence
    assert [item.ReferencedSOPInstanceUID for item in named] == [
        dcmread(path).SOPInstanceUID for path in plain.sources
    ]


def test_the_text_report_has_the_lines_of_the_report(plain: Written) -> None:
    text = plain.read("text_sr")
    last_step = derive(stored(plain, "sr"), BASIC_TEXT, "1.2.3")
    assert list(lines_in_text(text)) == list(lines_in_text(parse(last_step.content)))
    assert len(list(lines_in_text(text))) == len(plain.job.result.findings)
    assert "KI-Ergebnis" in output_of("dcmtk", "dsrdump", str(plain.path("text_sr")))
    assert text.SOPClassUID == "1.2.840.10008.5.1.4.1.1.88.11"


def test_each_names_its_own_predecessor(tmp_path: Path) -> None:
    release = make_release()
    job, sources = explained(make_study(26, "CR", ("PA",), rows=64, columns=64), release, tmp_path)
    first = {
        item.kind: item for item in build_report(job, release, CONTEXT, KINDS, sources).documents
    }
    earlier = {
        kind: dataclasses.replace(item, sop_instance_uid=f"1.2.3.{number}")
        for number, (kind, item) in enumerate(first.items(), 1)
        if kind != "json"
    }
    again = dataclasses.replace(
        job, predecessors=earlier, delivered_reports={"pacs": earlier["sr"]}
    )
    second = {
        item.kind: item for item in build_report(again, release, CONTEXT, KINDS, sources).documents
    }
    for kind in ("sr", *ORDERED):
        assert second[kind].predecessor_uid == earlier[kind].sop_instance_uid
        assert second[kind].series_instance_uid == first[kind].series_instance_uid
    (before,) = parse(second["text_sr"].content).PredecessorDocumentsSequence
    (series,) = before.ReferencedSeriesSequence
    assert [item.ReferencedSOPInstanceUID for item in series.ReferencedSOPSequence] == [
        earlier["text_sr"].sop_instance_uid
    ]


def explanations(report: Dataset) -> set[str]:
    """The pictures that groups of findings name."""
    return {
        str(item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID)
        for item in sr_gate.walk(report)
        if sr_gate.name_of(item) == "130401"
    }


def test_the_report_names_the_sheet_that_shows_maps_and_the_heat_map_rather(tmp_path: Path) -> None:
    release = make_release(has_cam=True)
    datasets = make_study(27, "CR", ("PA",), rows=64, columns=64)
    job, sources = explained(datasets, release, tmp_path)

    def named_by(*kinds: str, shown: bool = True) -> set[str]:
        report = build_report(
            job, release, CONTEXT, kinds, dataclasses.replace(sources, shows_maps=shown)
        )
        return explanations(parse(report.documents[0].content))

    uids = job.result.identifiers
    assert named_by("sr", "sheet") == {uids["sheet"]}
    assert named_by("sr", "sheet", "heatmap") == {uids["heatmap"]}
    assert named_by("sr", "pdf") == named_by("sr", "sheet", shown=False) == set()
    assert named_by("text_sr", "sheet") == {uids["sheet"]}


def test_a_report_that_names_its_sheet_is_clean(tmp_path: Path) -> None:
    found = write(tmp_path, "dx with maps")
    sr_gate.assert_clean(found.path("sr"), [*found.sources, found.path("sheet")], sr_gate.FAST)
    assert json.loads(found.path("json").read_bytes())["heat_map"]["findings"] == [
        "thickening",
        "infiltration",
        "effusion",
    ]


def test_a_study_of_which_nothing_can_be_read_has_none(tmp_path: Path) -> None:
    job = not_analysed(make_study(3, "CR", ("PA",), rows=64, columns=64), make_release())
    unreadable = tuple(
        dataclasses.replace(item, header=b"\x40\x00\x75\x02OB\x02\x00\x01\x20")
        for item in job.instances
    )
    report = build_report(
        dataclasses.replace(job, instances=unreadable),
        make_release(),
        CONTEXT,
        KINDS,
        HeatMapSources({}, 1),
    )
    assert [item.kind for item in report.documents] == ["json"]


def test_orthanc_stores_them_and_gives_back_the_same_objects(plain: Written) -> None:
    with Orthanc() as peer:
        settings = DicomDestination(port=peer.dicom_port, ae_title="ORTHANC", documents=ORDERED)
        client = DicomClient("pacs", settings)
        assert client.probe().is_ok
        for kind in ORDERED:
            client.deliver(stored(plain, kind))
        client.close()
        kept = {str(item.SOPInstanceUID): item for item in map(_of(peer), peer.instances())}
    for kind in ORDERED:
        mine = plain.read(kind)
        assert kept[str(mine.SOPInstanceUID)] == mine


def _of(peer: Orthanc):
    return lambda identifier: dcmread(io.BytesIO(peer.file(identifier)))
