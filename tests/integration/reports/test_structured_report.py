"""Structured reports under four validators and our own checks.

And every validator under reports that are damaged on purpose.

The fifth one, of the templates, has test_report_templates.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from hilum.report import build_documents
from testing.phantoms.phantom import make_study
from tests.support.reports import sr_gate
from tests.support.reports.read_back import (
    items,
    numbers,
    presence_in_json,
    presence_in_report,
    said_in_group,
    said_in_json,
)
from tests.support.reports.report_cases import (
    CASES,
    TEMPERATURE,
    TWO,
    built,
    rewritten,
    superseding,
    written,
)
from tests.support.reports.results import (
    CONTEXT,
    header_of,
    instance_of,
    lateral_of,
    make_release,
    parse,
    reading_of,
    report_job,
    report_of,
    results_of,
    study_job,
)

# The synthetic images of some tests hold what pydicom warns about.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")


@pytest.mark.parametrize("name", CASES)
def test_a_report_is_clean(name, tmp_path):
    datasets, document = CASES[name]()
    report, sources = written(tmp_path, datasets, document)
    sr_gate.assert_clean(report, sources, sr_gate.FAST)


def _without_tracking_uid(document: Dataset) -> None:
    group = items(document, "125007")[0]
    group.ContentSequence = Sequence(
        item for item in group.ContentSequence if sr_gate.name_of(item) != "112040"
    )


def measured(document: Dataset) -> Dataset:
    return numbers(document)[-1].MeasuredValueSequence[0]


def _set(keyword: str, value: object) -> Callable[[Dataset], None]:
    return lambda document: setattr(document, keyword, value)


DAMAGES: dict[str, tuple[str, Callable[[Dataset], object]]] = {
    "no completion flag": ("dciodvfy", lambda document: document.__delattr__("CompletionFlag")),
    "modality of an image": ("dciodvfy", _set("Modality", "DX")),
    "no evidence": ("dciodvfy", lambda document: document.__delattr__("CurrentRequestedProcedureEvidenceSequence")),
    "verified by nobody": ("dciodvfy", _set("VerificationFlag", "VERIFIED")),
    "another patient": ("dcentvfy", _set("PatientID", "SOMEBODY-ELSE")),
    "another birth date": ("dcentvfy", _set("PatientBirthDate", "19010101")),
    "a number without unit": ("dsrdump", lambda document: measured(document).__delattr__("MeasurementUnitsCodeSequence")),
    "a wrong relationship": ("dsrdump", lambda document: setattr(numbers(document)[-1], "RelationshipType", "INFERRED FROM")),
    "no template": ("tid1500reader", lambda document: document.__delattr__("ContentTemplateSequence")),
    "no tracking UID": ("content", _without_tracking_uid),
    "two values for one number": ("content", lambda document: setattr(measured(document), "NumericValue", "0.25")),
    "another accession number": ("content", _set("AccessionNumber", "OTHER")),
    "another study": ("content", _set("StudyInstanceUID", "1.2.3.4")),
    "called final": ("content", _set("PreliminaryFlag", "FINAL")),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_the_gate_sees_a_damaged_report(name, tmp_path):
    validator, damage = DAMAGES[name]
    datasets, document = CASES["cr_two_images"]()
    report, sources = written(tmp_path, datasets, document)
    rewritten(report, damage)
    (verdict,) = sr_gate.judge(report, sources, [validator])
    assert verdict.complaints


def test_a_validator_that_says_nothing_is_no_verdict(tmp_path):
    nothing = tmp_path / "nothing.dcm"
    nothing.write_bytes(b"")
    for verdict in sr_gate.judge(nothing, [], ("dciodvfy", "dsrdump", "tid1500reader")):
        assert "no sign of life" in verdict.complaints


@pytest.mark.parametrize(
    "changes",
    [{}, {"is_trained": False}, {"calibration": TEMPERATURE}],
    ids=["trained", "untrained", "calibrated"],
)
def test_read_back_it_says_what_the_json_says(changes):
    release = make_release(**changes)
    job = report_of(make_study(4, "DX", TWO, rows=32, columns=32), release)
    sr, plain = build_documents(job, release, CONTEXT, ("sr", "json"))
    report, content = parse(sr.content), json.loads(plain.content)
    assert [said_in_json(finding) for finding in content["findings"]] == [
        said_in_group(group) for group in items(report, "125007")
    ]
    assert presence_in_json(content) == presence_in_report(report)
    assert (str(report.SOPInstanceUID), str(report.SeriesInstanceUID)) == (
        content["structured_report"]["sop_instance_uid"],
        content["structured_report"]["series_instance_uid"],
    )
    assert report.InstanceNumber == content["revision"]
    (equipment,) = [item for item in report.ContributingEquipmentSequence if "DeviceUID" in item]
    assert (equipment.ManufacturerModelName, equipment.SoftwareVersions, equipment.DeviceUID) == (
        content["release"]["name"],
        content["release"]["version"],
        content["release"]["device_uid"],
    )


def test_untrained_weights_assert_nothing_and_say_why():
    release = make_release(is_trained=False)
    report = parse(built(make_study(4, rows=32, columns=32), release).content)
    assert {code for _, code in presence_in_report(report)} == {"373068000", "Undetermined"}
    assert report.SeriesDescription == "AI CXR untrained, densenet121@2 (unverified, uncalibrated)"
    comments = [item.TextValue for item in items(report, "121106")]
    assert any(comment.startswith("Untrained:") for comment in comments)
    assert (report.PreliminaryFlag, report.CompletionFlag, report.VerificationFlag) == (
        "PRELIMINARY",
        "COMPLETE",
        "UNVERIFIED",
    )


def test_no_code_is_private_so_that_none_needs_an_excuse():
    report = parse(built(make_study(4, rows=32, columns=32), make_release()).content)
    sequences = ("ConceptNameCodeSequence", "ConceptCodeSequence")
    schemes = {
        code.CodingSchemeDesignator
        for item in sr_gate.walk(report)
        for name in sequences
        for code in item.get(name, [])
    }
    assert schemes == {"DCM", "SCT", "UCUM", "UMLS", "RFC5646"} - {"UCUM"}


def test_times_are_the_results_and_in_the_zone_of_the_images():
    release = make_release()
    report = parse(
        built(
            make_study(
                4, views=("PA",), rows=32, columns=32, overrides={"TimezoneOffsetFromUTC": "-0330"}
            ),
            release,
        ).content
    )
    # CREATED_AT is 2026-09-21 14:13:20.250 UTC.
    assert (report.ContentDate, report.ContentTime, report.TimezoneOffsetFromUTC) == (
        "20260921",
        "104320.250000",
        "-0330",
    )
    assert (report.InstanceCreationDate, report.InstanceCreationTime) == (
        "20260921",
        "104320.250000",
    )


def test_a_late_image_gives_a_successor_in_the_same_series():
    datasets = make_study(12, "CR", TWO, rows=32, columns=32)
    release = make_release(calibration=TEMPERATURE)
    first, second = built(datasets[:1], release), superseding(datasets, release)
    assert second.series_instance_uid == first.series_instance_uid
    assert second.sop_instance_uid != first.sop_instance_uid
    (named,) = (
        parse(second.content)
        .PredecessorDocumentsSequence[0]
        .ReferencedSeriesSequence[0]
        .ReferencedSOPSequence
    )
    assert named.ReferencedSOPInstanceUID == first.sop_instance_uid == second.predecessor_uid


TYPE_2 = (
    "PatientName",
    "PatientID",
    "PatientBirthDate",
    "PatientSex",
    "AccessionNumber",
    "StudyID",
    "StudyDate",
    "StudyTime",
)
DESCRIPTORS = ("Modality", "Rows", "Columns", "PatientOrientation", "ImagerPixelSpacing")
BAD_HEADERS: dict[str, dict[str, object]] = {
    "nothing but UIDs": dict.fromkeys(
        (*TYPE_2, *DESCRIPTORS, "ReferringPhysicianName", "Manufacturer")
    ),
    "dates and times": {"StudyTime": "25", "StudyDate": "2026-01-05", "PatientAge": "old"},
    "values outside the rules": {"PatientSex": "X", "AccessionNumber": "A" * 20},
    "one orientation": {"PatientOrientation": "L", "ImagerPixelSpacing": ["0.2"]},
    "name of one component": {"PatientName": "Doe"},
}


@pytest.mark.parametrize("name", BAD_HEADERS)
@pytest.mark.parametrize("modality", ["DX", "CR", "SC"])
def test_a_bad_header_gives_a_report_and_no_line_on_the_terminal(
    name, modality, tmp_path, capfd, caplog
):
    datasets = make_study(8, modality, ("PA",), rows=32, columns=32, overrides=BAD_HEADERS[name])
    job, release = report_of(datasets, make_release()), make_release()
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        document = build_documents(job, release, CONTEXT, ("sr",))[0]
    captured = capfd.readouterr()
    assert "Doe" not in caplog.text + captured.out + captured.err
    report, sources = written(tmp_path, datasets, document)
    sr_gate.assert_clean(report, sources, ("dsrdump", "tid1500reader"))
    assert parse(document.content).AccessionNumber == (datasets[0].get("AccessionNumber") or "")


CHARACTER_SETS = (
    "cr_chest_ja_explicit_ir6",
    "cr_chest_ja_ir87",
    "de_latin1",
    "fr_multi",
    "ja_h31",
    "ru_cyrillic",
    "zh_utf8",
)


@pytest.mark.parametrize("name", CHARACTER_SETS)
def test_every_character_set_becomes_unicode(name, test_data, tmp_path):
    """The identity of a real file, in its own character set, on a synthetic image."""
    real = dcmread(test_data / "dicom" / "charsets" / f"{name}.dcm", stop_before_pixels=True)
    (image,) = make_study(6, "CR", ("PA",), rows=32, columns=32)
    for keyword in ("SpecificCharacterSet", "PatientName", "PatientID", "StudyDescription"):
        image[keyword] = real[keyword] if keyword in real else image[keyword]
    release = make_release()
    instance = instance_of(image, header=header_of(image))
    (result,) = results_of(study_job([instance], [reading_of(instance, release)]), release)
    sr, plain = build_documents(report_job([instance], result), release, CONTEXT)
    report = parse(sr.content)
    assert report.SpecificCharacterSet == "ISO_IR 192"
    assert str(report.PatientName) == str(real.PatientName)
    assert str(real.PatientName).encode() in sr.content
    assert json.loads(plain.content)["study"]["patient_id"] == (str(real.PatientID).strip() or None)
    path, _ = written(tmp_path, [image], sr)
    complaints = [
        line
        for verdict in sr_gate.judge(path, [], ("dciodvfy", "dsrdump"))
        for line in verdict.complaints
    ]
    # One of the names has no caret; that is the source's own, and not to be mended here.
    assert [line for line in complaints if "Retired Person Name form" not in line] == []


def test_a_lateral_that_nobody_read_is_no_evidence():
    release = make_release()
    datasets = make_study(4, rows=32, columns=32)
    instances = [instance_of(dataset, number) for number, dataset in enumerate(datasets, 1)]
    (result,) = results_of(
        study_job(
            instances, [reading_of(instances[0], release), lateral_of(instances[1], release)]
        ),
        release,
    )
    document = build_documents(report_job(instances, result), release, CONTEXT, ("sr",))[0]
    report = parse(document.content)
    evidence = str(report.CurrentRequestedProcedureEvidenceSequence[0])
    named = {
        item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID
        for item in sr_gate.walk(report)
        if item.ValueType == "IMAGE"
    }
    assert named == {datasets[0].SOPInstanceUID}
    assert datasets[1].SOPInstanceUID not in evidence
