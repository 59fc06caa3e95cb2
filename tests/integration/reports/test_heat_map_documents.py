"""Heat maps as documents: clean Secondary Capture, linked from a clean report, left out with a reason when they cannot be drawn."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit

from hilum.domain import Document, ReadingState, Release, ServerReason
from hilum.errors import WorkerDied
from hilum.processes.heat_maps import build_in_time
from hilum.processes.report_pool import ReportPool
from hilum.report import (
    BuiltReport,
    HeatMapSources,
    Picture,
    build_documents,
    build_report,
    derive,
    json_schema,
)
from hilum.settings import DicomDestination
from testing.phantoms.phantom import make_study
from tests.support.peers.peers import require_program
from tests.support.reports import sr_gate
from tests.support.reports.heat_maps import explained
from tests.support.reports.reporting import template_of
from tests.support.reports.results import (
    CONTEXT,
    LOGITS,
    instance_of,
    make_release,
    parse,
    reading_of,
    report_job,
    results_of,
    study_job,
)
from tests.support.reports.validators import complaints

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
KINDS = ("sr", "json")
DRAWN = (*KINDS, "heatmap")
TWO = ("PA", "AP")
TEMPERATURE = {"method": "temperature", "temperature": 1.3}


def built(
    folder: Path, datasets: list[Dataset], release: Release, **changes: object
) -> BuiltReport:
    job, sources = explained(datasets, release, folder)
    return build_report(job, release, CONTEXT, DRAWN, dataclasses.replace(sources, **changes))


def of_kind(report: BuiltReport, kind: str) -> Document:
    (found,) = [document for document in report.documents if document.kind == kind]
    return found


def written(
    folder: Path, report: BuiltReport, datasets: list[Dataset]
) -> tuple[Path, Path, list[Path]]:
    """SR, heat map and sources as files."""
    sr, picture = folder / "sr.dcm", folder / "heat_map.dcm"
    sr.write_bytes(of_kind(report, "sr").content)
    picture.write_bytes(of_kind(report, "heatmap").content)
    return sr, picture, [folder / f"stored{number}.dcm" for number in range(len(datasets))]


CASES = {
    "dx": (make_release(), {"modality": "DX", "views": ("PA",)}),
    "cr_two_untrained": (make_release(is_trained=False), {"modality": "CR", "views": TWO}),
    "sc_calibrated": (make_release(calibration=TEMPERATURE), {"modality": "SC", "views": ("PA",)}),
    "dx_monochrome1_jpeg": (
        make_release(),
        {
            "modality": "DX",
            "views": ("PA",),
            "photometric": "MONOCHROME1",
            "transfer_syntax_uid": JPEGBaseline8Bit,
            "bits": 8,
        },
    ),
    "cr_bare_header": (
        make_release(),
        {
            "modality": "CR",
            "views": ("PA",),
            "overrides": {"PatientOrientation": None, "TimezoneOffsetFromUTC": "+0530"},
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_heat_map_and_report_are_clean(name, tmp_path):
    release, study = CASES[name]
    datasets = make_study(21, rows=96, columns=128, **study)
    report = built(tmp_path, datasets, release)
    assert report.heat_map_left_out is None
    assert [document.kind for document in report.documents] == ["sr", "json", "heatmap"]
    sr, picture, sources = written(tmp_path, report, datasets)
    assert complaints("dciodvfy", picture) == []
    assert complaints("dcentvfy", *sources, picture, sr) == []
    sr_gate.assert_clean(sr, [*sources, picture], sr_gate.FAST)
    Draft202012Validator(json_schema()).validate(json.loads(of_kind(report, "json").content))


def test_the_validators_see_a_damaged_heat_map(tmp_path):
    datasets = make_study(21, "CR", ("PA",), rows=96, columns=128)
    _, picture, sources = written(tmp_path, built(tmp_path, datasets, make_release()), datasets)
    damaged = dcmread(picture)
    del damaged.PhotometricInterpretation
    damaged.PatientID = "OTHER"
    damaged.save_as(picture)
    assert complaints("dciodvfy", picture)
    assert complaints("dcentvfy", *sources, picture)


def explanations(sr: Dataset) -> dict[str, str]:
    """Key of a finding to the UID of the picture that its group names."""
    found = {}
    for group in sr_gate.walk(sr):
        if sr_gate.name_of(group) == "125007":
            items = {sr_gate.name_of(item): item for item in group.ContentSequence}
            if "130401" in items:
                found[items["112039"].TextValue] = (
                    items["130401"].ReferencedSOPSequence[0].ReferencedSOPInstanceUID
                )
    return found


def test_the_groups_of_the_shown_findings_name_the_picture(tmp_path):
    report = built(tmp_path, make_study(22, "CR", ("PA",), rows=64, columns=64), make_release())
    picture = of_kind(report, "heatmap")
    content = json.loads(of_kind(report, "json").content)
    assert explanations(parse(of_kind(report, "sr").content)) == dict.fromkeys(
        ("effusion", "infiltration", "thickening"), picture.sop_instance_uid
    )
    assert content["heat_map"] == {
        "sop_instance_uid": picture.sop_instance_uid,
        "series_instance_uid": picture.series_instance_uid,
        "findings": ["thickening", "infiltration", "effusion"],
    }


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_report_of_another_class_keeps_the_link(tmp_path, step):
    from hilum.domain import SR_CLASS_PREFERENCE

    report = built(tmp_path, make_study(22, "CR", ("PA",), rows=64, columns=64), make_release())
    lower = parse(derive(of_kind(report, "sr"), SR_CLASS_PREFERENCE[step], f"1.2.3.{step}").content)
    named = [
        item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID
        for item in sr_gate.walk(lower)
        if sr_gate.name_of(item) == "130401"
    ]
    assert set(named) == {of_kind(report, "heatmap").sop_instance_uid}


def test_the_attributes_say_what_it_is(tmp_path):
    datasets = make_study(23, "DX", TWO, rows=64, columns=64)
    picture = parse(
        of_kind(built(tmp_path, datasets, make_release(is_trained=False)), "heatmap").content
    )
    assert picture.file_meta.TransferSyntaxUID == ExplicitVRLittleEndian
    assert (picture.PhotometricInterpretation, picture.BitsAllocated, picture.SamplesPerPixel) == (
        "RGB",
        8,
        3,
    )
    assert (
        picture.SeriesDescription
        == "AI heat map, not for diagnosis, de~1@2 (uncalibrated, untrained)"
    )
    assert (picture.Modality, picture.SeriesNumber, picture.InstanceNumber) == ("OT", 9002, 1)
    assert (picture.BurnedInAnnotation, picture.BodyPartExamined, picture.Manufacturer) == (
        "YES",
        "CHEST",
        "Hilum project",
    )
    assert "7 x 7 cells, one cell = 9 x 9 px" in picture.DerivationDescription
    assert "not for diagnosis" in picture.ImageComments
    assert "Untrained" in picture.ImageComments
    assert [item.ReferencedSOPInstanceUID for item in picture.SourceImageSequence] == [
        item.SOPInstanceUID for item in datasets
    ]
    assert {
        item.PurposeOfReferenceCodeSequence[0].CodeValue for item in picture.SourceImageSequence
    } == {"121322"}
    (equipment,) = [item for item in picture.ContributingEquipmentSequence if "DeviceUID" in item]
    assert (equipment.ManufacturerModelName, equipment.SoftwareVersions) == ("densenet121", "2")
    assert (picture.StudyInstanceUID, picture.PatientID) == (
        datasets[0].StudyInstanceUID,
        datasets[0].PatientID,
    )


def test_it_is_of_the_patient_of_the_report_where_the_first_image_names_none(tmp_path):
    datasets = make_study(24, "CR", TWO, rows=64, columns=64)
    expected, datasets[0].PatientID = datasets[1].PatientID, ""
    report = built(tmp_path, datasets, make_release())
    documents = [parse(of_kind(report, kind).content) for kind in ("sr", "heatmap")]
    assert [item.PatientID for item in documents] == [expected] * 2


def test_lossy_pixels_stay_lossy(tmp_path):
    datasets = make_study(
        24, "CR", ("PA",), rows=64, columns=64, transfer_syntax_uid=JPEGBaseline8Bit
    )
    picture = parse(of_kind(built(tmp_path, datasets, make_release()), "heatmap").content)
    assert picture.LossyImageCompression == "01"
    assert "LossyImageCompressionRatio" in picture


def test_built_again_it_is_the_same_byte_for_byte(tmp_path):
    datasets = make_study(25, "CR", TWO, rows=64, columns=64)
    first, second = (built(tmp_path, datasets, make_release()) for _ in range(2))
    assert first == second


def test_a_series_for_all_revisions_and_a_predecessor(tmp_path):
    datasets = make_study(26, "CR", ("PA",), rows=64, columns=64)
    release = make_release()
    job, sources = explained(datasets, release, tmp_path)
    first = of_kind(build_report(job, release, CONTEXT, DRAWN, sources), "heatmap")
    job = dataclasses.replace(
        job, predecessors={"heatmap": dataclasses.replace(first, sop_instance_uid="1.2.3")}
    )
    assert (
        of_kind(build_report(job, release, CONTEXT, DRAWN, sources), "heatmap").predecessor_uid
        == "1.2.3"
    )
    assert first.series_instance_uid == job.result.identifiers["heatmap_series"]


def test_nothing_present_gives_no_heat_map_and_no_excuse(tmp_path):
    release = make_release(
        labels=tuple(
            dataclasses.replace(label, operating_point=0.999) for label in make_release().labels
        )
    )
    report = built(tmp_path, make_study(27, "CR", ("PA",), rows=64, columns=64), release)
    assert [document.kind for document in report.documents] == ["sr", "json"]
    assert report.heat_map_left_out is None
    content = json.loads(of_kind(report, "json").content)
    assert content["heat_map"] is None
    assert not any("heat map" in sentence for sentence in content["caveats"])


def test_a_revision_that_shows_nothing_takes_the_place_of_one_that_did(tmp_path):
    datasets = make_study(27, "CR", ("PA",), rows=64, columns=64)
    release = make_release(
        labels=tuple(
            dataclasses.replace(label, operating_point=0.999) for label in make_release().labels
        )
    )
    job, sources = explained(datasets, release, tmp_path)
    earlier = of_kind(built(tmp_path, datasets, make_release()), "heatmap")
    report = build_report(
        dataclasses.replace(job, predecessors={"heatmap": earlier}),
        release,
        CONTEXT,
        DRAWN,
        sources,
    )
    taken_away(tmp_path, report, earlier, datasets, "No finding is present any more.")


def taken_away(
    folder: Path, report: BuiltReport, earlier: Document, datasets: list[Dataset], said: str
) -> None:
    """The sheet of words is clean, stands after the earlier one in its series, and the report names no picture."""
    sr, picture, stored = written(folder, report, datasets)
    assert complaints("dciodvfy", picture) == []
    assert complaints("dcentvfy", *stored, picture, sr) == []
    withdrawn = dcmread(picture)
    assert (
        withdrawn.DerivationDescription
        == f"{said} Earlier heat maps of this series no longer hold."
    )
    assert (withdrawn.SeriesInstanceUID, withdrawn.PatientID) == (
        earlier.series_instance_uid,
        datasets[0].PatientID,
    )
    assert of_kind(report, "heatmap").predecessor_uid == earlier.sop_instance_uid
    assert explanations(dcmread(sr)) == {}
    assert json.loads(of_kind(report, "json").content)["heat_map"] is None
    sr_gate.assert_clean(sr, stored, sr_gate.FAST)


def test_a_rejected_image_takes_its_heat_map_away(tmp_path):
    datasets, release = make_study(34, "CR", TWO, rows=64, columns=64), make_release()
    earlier = of_kind(built(tmp_path, datasets, release), "heatmap")
    instances = [instance_of(item, number) for number, item in enumerate(datasets, 1)]
    rejected = {
        "state": ReadingState.NOT_ANALYSED,
        "logits": None,
        "reason": ServerReason.REJECTED.value,
    }
    (result,) = results_of(
        study_job(instances, [reading_of(item, release, **rejected) for item in instances]), release
    )
    job, nothing = (
        report_job(instances, result, {"heatmap": earlier}),
        HeatMapSources({}, 1, "A process died."),
    )
    report = build_report(job, release, CONTEXT, DRAWN, nothing)
    assert report.heat_map_left_out is None
    taken_away(
        tmp_path, report, earlier, datasets, "The study is not analysed any more (rejected)."
    )


def _gone(sources: HeatMapSources) -> HeatMapSources:
    return dataclasses.replace(
        sources,
        pictures={
            uid: dataclasses.replace(item, path=None) for uid, item in sources.pictures.items()
        },
    )


def _deleted(sources: HeatMapSources) -> HeatMapSources:
    for item in sources.pictures.values():
        item.path.unlink()
    return sources


def _truncated(sources: HeatMapSources) -> HeatMapSources:
    for item in sources.pictures.values():
        item.path.write_bytes(item.path.read_bytes()[:-2000])
    return sources


def _garbage(sources: HeatMapSources) -> HeatMapSources:
    for item in sources.pictures.values():
        item.path.write_bytes(b"no DICOM at all")
    return sources


def _without_maps(sources: HeatMapSources) -> HeatMapSources:
    return dataclasses.replace(
        sources, pictures={uid: Picture(item.path, None) for uid, item in sources.pictures.items()}
    )


def _read_again(sources: HeatMapSources) -> HeatMapSources:
    changed = tuple(value + 0.5 for value in LOGITS)
    pictures = {
        uid: Picture(item.path, dataclasses.replace(item.maps, logits=changed))
        for uid, item in sources.pictures.items()
    }
    return dataclasses.replace(sources, pictures=pictures)


OBSTACLES = {
    "gone": (_gone, "gone from the archive"),
    "deleted": (_deleted, "gone from the archive"),
    "unknown": (lambda sources: dataclasses.replace(sources, pictures={}), "gone from the archive"),
    "truncated": (_truncated, "truncated_pixel_data"),
    "garbage": (_garbage, "corrupt_header"),
    "too large": (lambda sources: dataclasses.replace(sources, maximum_pixels=10), "too_large"),
    "no maps": (_without_maps, "no class activation map"),
    "read again": (_read_again, "analysed again"),
    "a process died": (
        lambda sources: dataclasses.replace(sources, obstacle="It ended a process."),
        "ended a process",
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_the_report_goes_without_a_heat_map_that_cannot_be_drawn_and_says_so(name, tmp_path):
    spoil, said = OBSTACLES[name]
    datasets = make_study(28, "CR", ("PA",), rows=64, columns=64)
    release = make_release()
    job, sources = explained(datasets, release, tmp_path)
    report = build_report(job, release, CONTEXT, DRAWN, spoil(sources))
    assert [document.kind for document in report.documents] == ["sr", "json"]
    assert said in report.heat_map_left_out
    sr = parse(of_kind(report, "sr").content)
    assert explanations(sr) == {}
    comments = [item.TextValue for item in sr_gate.walk(sr) if sr_gate.name_of(item) == "121106"]
    assert f"No heat map: {report.heat_map_left_out}" in comments
    assert json.loads(of_kind(report, "json").content)["heat_map"] is None


def test_an_earlier_heat_map_does_not_stay_the_last_word_when_none_can_be_drawn(tmp_path):
    datasets, release = make_study(28, "CR", TWO, rows=64, columns=64), make_release()
    job, sources = explained(datasets, release, tmp_path)
    earlier = of_kind(build_report(job, release, CONTEXT, DRAWN, sources), "heatmap")
    again = dataclasses.replace(job, predecessors={"heatmap": earlier})
    report = build_report(again, release, CONTEXT, DRAWN, _gone(sources), template_of(release))
    assert report.heat_map_left_out == "The stored object is gone from the archive."
    taken_away(tmp_path, report, earlier, datasets, f"No new heat map: {report.heat_map_left_out}")


def test_a_report_without_heat_maps_is_what_it_was(tmp_path):
    """Built with no picture to draw, it is byte for byte the report of a site that has asked for none."""
    datasets = make_study(29, "CR", ("PA",), rows=64, columns=64)
    release = make_release(
        labels=tuple(
            dataclasses.replace(label, operating_point=0.999) for label in make_release().labels
        )
    )
    job, sources = explained(datasets, release, tmp_path)
    assert build_report(job, release, CONTEXT, DRAWN, sources).documents == build_documents(
        job, release, CONTEXT, KINDS
    )


def test_no_patient_is_named_in_what_hinders(tmp_path, capfd):
    datasets = make_study(
        30, "CR", ("PA",), rows=64, columns=64, overrides={"PatientName": "Marked^Name"}
    )
    report = built(tmp_path, datasets, make_release(), maximum_pixels=10)
    captured = capfd.readouterr()
    assert "Marked" not in str(report.heat_map_left_out) + captured.out + captured.err


@pytest.mark.slow
def test_a_drawing_that_hangs_costs_its_process_and_no_report(tmp_path):
    """A pipe without a writer stands for a codec that never ends."""
    datasets = make_study(31, "CR", ("PA",), rows=64, columns=64)
    release = make_release()
    job, sources = explained(datasets, release, tmp_path)
    hanging = tmp_path / "hanging"
    os.mkfifo(hanging)
    pictures = {
        uid: dataclasses.replace(item, path=hanging) for uid, item in sources.pictures.items()
    }
    stuck = dataclasses.replace(sources, pictures=pictures)

    async def run() -> BuiltReport:
        with ReportPool(1) as pool:
            with pytest.raises(WorkerDied):
                await pool.run(build_in_time, job, release, CONTEXT, DRAWN, stuck, None, 4)
            return await pool.run(build_in_time, job, release, CONTEXT, DRAWN, sources, None, 60)

    report = asyncio.run(run())
    assert [document.kind for document in report.documents] == ["sr", "json", "heatmap"]


def test_dcmtk_can_show_it(tmp_path):
    """A viewer's eye: DCMTK renders the whole sheet."""
    datasets = make_study(32, "CR", ("PA",), rows=64, columns=64)
    _, picture, _ = written(tmp_path, built(tmp_path, datasets, make_release()), datasets)
    target = tmp_path / "shown.ppm"
    command = [require_program("dcm2pnm", "dcmtk"), "+op", str(picture), str(target)]
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    pixels = dcmread(picture).pixel_array
    assert np.array_equal(np.asarray(Image.open(target)), pixels)


@pytest.mark.slow
def test_a_pacs_takes_picture_and_report_over_one_association(tmp_path):
    from hilum.deliver import open_client
    from tests.support.peers.peers import Orthanc

    report = built(tmp_path, make_study(33, "DX", ("PA",), rows=64, columns=64), make_release())
    with Orthanc() as orthanc:
        there = DicomDestination(
            host="127.0.0.1",
            port=orthanc.dicom_port,
            ae_title=orthanc.ae_title,
            documents=("sr", "heatmap"),
        )
        client = open_client("pacs", there)
        for kind in ("sr", "heatmap", "heatmap"):
            client.deliver(of_kind(report, kind))
        client.close()
        for kind in ("sr", "heatmap"):
            (stored,) = orthanc.find(of_kind(report, kind).sop_instance_uid)
            assert parse(orthanc.file(stored)) == parse(of_kind(report, kind).content)


def test_a_report_without_a_heat_map_loads_nothing_for_it():
    unwanted = "('hilum_preprocessing.decode', 'imagecodecs', 'torch', 'hilum.report.heat_map')"
    code = (
        f"import sys, hilum.report; sys.exit(', '.join(name for name in {unwanted} if name in"
        " sys.modules) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
