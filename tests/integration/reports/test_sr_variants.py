"""Every variant of the report under the gate, and read back against the JSON.

Modality, number of images, what their headers hold, what was found, what was not analysed, what it
replaces, and each SOP Class of the ladder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydicom.dataset import Dataset

from hilum.domain import SR_CLASS_PREFERENCE, Document, Release
from hilum.report import HeatMap, build_documents, derive
from testing.phantoms.phantom import save
from tests.support.reports import sr_gate
from tests.support.reports.read_back import (
    items,
    lines_in_json,
    lines_in_text,
    measured_in_text,
    presence_in_json,
    presence_in_report,
    said_in_group,
    said_in_json,
)
from tests.support.reports.report_variants import GOLDEN, VARIANTS, Built, make
from tests.support.reports.reporting import sent
from tests.support.reports.results import CONTEXT, parse

# Synthetic headers with what pydicom warns about.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")


def gate(folder: Path, built: Built, document: Document, validators: Sequence[str]) -> None:
    named = document.content
    sources = [
        save(image, folder / f"{number}.dcm")
        for number, image in enumerate(built.images)
        if image.SOPInstanceUID.encode() in named
    ]
    report = folder / "report.dcm"
    report.write_bytes(named)
    sr_gate.assert_clean(report, sources, validators)


def assert_says_what_it_is(report: Dataset, built: Built, release: Release) -> None:
    """Preliminary, unverified, uncalibrated and untrained, where a machine looks, where a list shows it, and in words."""
    comments = " ".join(item.TextValue for item in items(report, "121106"))
    assert (report.PreliminaryFlag, report.CompletionFlag, report.VerificationFlag) == (
        "PRELIMINARY",
        "COMPLETE",
        "UNVERIFIED",
    )
    assert "Preliminary and unverified" in comments
    assert "unverified" in report.SeriesDescription
    has_number = bool(built.job.result.findings)
    for word, is_so in (
        ("Untrained", not release.is_trained),
        ("Uncalibrated", has_number and not built.job.result.is_calibrated),
    ):
        assert (word in comments, word.lower() in report.SeriesDescription) == (is_so, is_so)
    assert all(sentence in comments for sentence in built.content["caveats"])


def assert_identifies_the_release(report: Dataset, built: Built) -> None:
    (equipment,) = [item for item in report.ContributingEquipmentSequence if "DeviceUID" in item]
    release = built.content["release"]
    said = (equipment.ManufacturerModelName, equipment.SoftwareVersions, equipment.DeviceUID)
    assert said == (release["name"], release["version"], release["device_uid"])
    assert report.InstanceNumber == built.content["revision"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_clean_and_says_what_the_json_says(name: str, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    built = make(variant)
    gate(tmp_path, built, built.sr, sr_gate.FAST)
    report = parse(built.sr.content)
    assert [said_in_group(group) for group in items(report, "125007")] == [
        said_in_json(item) for item in built.content["findings"]
    ]
    assert_says_what_it_is(report, built, variant.release)
    assert_identifies_the_release(report, built)
    if built.content["outcome"] == "not_analysed":
        assert sr_gate.says_not_analysed(report)
        reason = f"Not analysed ({built.content['reason']}): {built.content['reason_text']}"
        assert any(reason in item.TextValue for item in items(report, "121106"))
    else:
        assert presence_in_report(report) == presence_in_json(built.content)
    assert ("PredecessorDocumentsSequence" in report) == variant.is_second


@pytest.mark.parametrize("name", GOLDEN)
def test_the_reference_writes_the_same(name: str) -> None:
    built = make(VARIANTS[name])
    assert build_documents(built.job, VARIANTS[name].release, CONTEXT, ("sr",)) == [built.sr]


LADDERED = (
    "CR_mixed",
    "DX_doubted",
    "DX_not_analysed",
    "SC_superseding",
    "DX_calibrated",
    "CR_untrained",
    "CR_first_frontal",
)


@pytest.mark.parametrize("wanted", SR_CLASS_PREFERENCE[1:], ids=lambda item: item.name)
@pytest.mark.parametrize("name", LADDERED)
def test_a_lower_class_is_clean_and_says_the_same(name: str, wanted: Any, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    built = make(variant)
    lower = derive(built.sr, wanted, built.job.result.identifiers[wanted.kind])
    is_text = wanted.name == "basic_text"
    gate(tmp_path, built, lower, sr_gate.TEXT if is_text else sr_gate.FAST)
    report = parse(lower.content)
    assert (lower.kind, report.SOPClassUID, report.file_meta.MediaStorageSOPClassUID) == (
        wanted.kind,
        *[wanted.sop_class_uid] * 2,
    )
    assert (
        lower.sop_instance_uid
        == report.SOPInstanceUID
        == report.file_meta.MediaStorageSOPInstanceUID
        != built.sr.sop_instance_uid
    )
    assert lower.series_instance_uid == report.SeriesInstanceUID == built.sr.series_instance_uid
    assert derive(built.sr, wanted, lower.sop_instance_uid or "") == lower
    assert_says_what_it_is(report, built, variant.release)
    if is_text:
        assert list(lines_in_text(report)) == lines_in_json(built.content)
        assert measured_in_text(report) == {
            uid for item in built.content["findings"] for uid in item["source_sop_instance_uids"]
        }
    else:
        assert [said_in_group(group) for group in items(report, "125007")] == [
            said_in_json(item) for item in built.content["findings"]
        ]
    assert ("PredecessorDocumentsSequence" in report) == variant.is_second


def test_a_lower_class_can_be_made_of_a_lower_class() -> None:
    """A receiver that took Enhanced SR yesterday and takes text alone today."""
    built = make(VARIANTS["CR_mixed"])
    enhanced = derive(built.sr, SR_CLASS_PREFERENCE[2], "2.25.1")
    direct = derive(built.sr, SR_CLASS_PREFERENCE[3], "2.25.2")
    assert derive(enhanced, SR_CLASS_PREFERENCE[3], "2.25.2").content == direct.content


@pytest.mark.parametrize("wanted", SR_CLASS_PREFERENCE[1:], ids=lambda item: item.name)
def test_a_lower_class_still_names_the_heat_map(wanted: Any, tmp_path: Path) -> None:
    variant = VARIANTS["DX_1_with_optional"]
    built = make(variant)
    named = HeatMap("1.2.840.10008.5.1.4.1.1.7", "2.25.77", "2.25.78", ("effusion",))
    (document,) = sent(built.job, variant.release, ("sr",), named)
    lower = derive(document, wanted, "2.25.79")
    report = tmp_path / "report.dcm"
    report.write_bytes(lower.content)
    sr_gate.assert_clean(report, [], ("dciodvfy", "dsrdump"))
    (explanation,) = items(parse(lower.content), "130401")
    assert explanation.ReferencedSOPSequence[0].ReferencedSOPInstanceUID == "2.25.77"
