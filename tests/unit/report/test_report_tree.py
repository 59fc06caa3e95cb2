from __future__ import annotations

import dataclasses
from functools import partial
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom import dcmwrite
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.errors import InvalidDicomError
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian

from hilum.domain import SR_CLASS_PREFERENCE, Outcome
from hilum.report import build_documents, derive, sr_text
from hilum.report.wording import picture_description, series_description
from testing.phantoms.phantom import make_study
from tests.support.reports.results import CONTEXT, make_release, report_job, report_of


def tree(release=None, used=(True, False), **overrides):
    release = release or make_release()
    job = report_of(
        make_study(
            3, views=("PA", "LATERAL")[: len(used)], rows=16, columns=16, overrides=overrides
        ),
        release,
        used,
    )
    return sr_text(build_documents(job, release, CONTEXT, ("sr",))[0].content)


def test_no_line_is_wider_than_a_terminal():
    assert max(map(len, tree().splitlines())) <= 80


def test_it_says_what_a_reader_must_know():
    text = tree(make_release(is_trained=False))
    flat = " ".join(text.replace("│", " ").split())
    assert "PRELIMINARY · COMPLETE · UNVERIFIED" in text
    assert "Series: AI CXR untrained, densenet121@2 (unverified, uncalibrated)" in text
    assert "├─ Pleural effusion: Undetermined" in text
    assert "Score: 0.6099733 (Model output, uncalibrated)" in text
    assert "Uncalibrated: a score is the output of the model, not a probability." in flat
    assert "no finding is called present or absent" in flat
    assert "1 of 2 images not used (lateral_not_supported)" in flat


def test_decisions_and_percent_of_a_calibrated_release():
    text = tree(make_release(calibration={"method": "platt", "a": 1.0, "b": -3.0}))
    assert "Certainty of Finding: 7.2239 %" in text
    assert "operating_point=0.5\n   │  ├─ Algorithm Parameters: score=0.6099733\n" in text, (
        "what was compared with the operating point"
    )
    assert "├─ Pleural effusion: Present" in text
    assert "├─ Pneumothorax: Absent" in text
    assert "Finding: Pleural thickening: Present (private code 99HILUM" in text
    assert "ncalibrated" not in text


def test_basic_text_says_score_and_operating_point_beside_a_certainty():
    release = make_release(calibration={"method": "platt", "a": 1.0, "b": -3.0})
    job = report_of(make_study(3, views=("PA",), rows=16, columns=16), release)
    (document,) = build_documents(job, release, CONTEXT, ("sr",))
    text = " ".join(
        sr_text(derive(document, SR_CLASS_PREFERENCE[3], "2.25.5").content)
        .replace("│", " ")
        .split()
    )
    assert (
        "Pleural effusion: Present. Certainty of Finding 7.2239 %; score=0.6099733,"
        " operating_point=0.5" in text
    )


def test_a_replacement_names_its_predecessor():
    release = make_release()
    job = report_of(make_study(3, views=("PA",), rows=16, columns=16), release)
    (before,) = build_documents(job, release, CONTEXT, ("sr",))
    later = dataclasses.replace(
        job.result, revision=2, identifiers={**job.result.identifiers, "sr": "2.25.5"}
    )
    (after,) = build_documents(
        report_job(job.instances, later, {"sr": before}), release, CONTEXT, ("sr",)
    )
    assert f"Replaces: {before.sop_instance_uid}" in sr_text(after.content)
    assert after.predecessor_uid == before.sop_instance_uid


RELEASES = [("densenet121_untrained", "1"), ("densenet121_untrained", "2"), ("vit_b16", "1")]


def described(describe, outcome, **changes):
    """Series Descriptions of the results of RELEASES."""
    for name, version in RELEASES:
        release = make_release(name=name, version=version, **changes)
        result = report_of(make_study(3, views=("PA",), rows=16, columns=16), release).result
        yield describe(dataclasses.replace(result, outcome=outcome))


STATES = {
    "untrained": {"is_trained": False},
    "uncalibrated": {},
    "calibrated": {"calibration": {"method": "platt", "a": 1.0, "b": -3.0}},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", [Outcome.ANALYSED, Outcome.NOT_ANALYSED])
def test_cut_at_32_characters_a_report_still_says_its_state_and_its_release(state, outcome):
    texts = list(described(series_description, outcome, **STATES[state]))
    states = {"untrained": "AI CXR untrained, "}.get(state, "AI CXR unverified, ")
    wanted = "AI CXR not analysed, " if outcome is Outcome.NOT_ANALYSED else states
    assert all(text.startswith(wanted) and len(text) <= 64 for text in texts)
    assert len({text[:32] for text in texts}) == len(RELEASES)
    assert all(len(text) <= 32 or text.find(" (") in range(33) for text in texts), (
        "the release is whole within them"
    )


@pytest.mark.parametrize(
    ("state", "outcome", "said"),
    [
        ("untrained", Outcome.ANALYSED, {"untrained", "unverified", "uncalibrated"}),
        ("uncalibrated", Outcome.ANALYSED, {"unverified", "uncalibrated"}),
        ("calibrated", Outcome.ANALYSED, {"unverified"}),
        ("untrained", Outcome.NOT_ANALYSED, {"not analysed", "untrained", "unverified"}),
        ("calibrated", Outcome.NOT_ANALYSED, {"not analysed", "unverified"}),
    ],
)
def test_a_series_description_says_all_that_holds(state, outcome, said):
    words = {"untrained", "unverified", "uncalibrated", "not analysed"}
    for text in described(series_description, outcome, **STATES[state]):
        assert {word for word in words if word in text.replace("densenet121_untrained", "")} == said


@pytest.mark.parametrize("is_trained", [True, False])
def test_series_of_heat_maps_of_two_releases_differ_and_their_warnings_are_whole(is_trained):
    texts = list(
        described(
            partial(picture_description, title="AI heat map"),
            Outcome.ANALYSED,
            is_trained=is_trained,
        )
    )
    assert len(set(texts)) == len(RELEASES)
    assert all(
        text.startswith("AI heat map, not for diagnosis, ") and len(text) <= 64 for text in texts
    )
    assert all(
        text.endswith("uncalibrated)" if is_trained else "uncalibrated, untrained)")
        for text in texts
    )


def test_a_foreign_name_stays_readable():
    assert "Patient: Müller^Jörg" in tree(PatientName="Müller^Jörg")


def test_other_bytes_are_refused():
    with pytest.raises(InvalidDicomError):
        sr_text(b"no DICOM")


def document(content: Dataset) -> bytes:
    content.SOPClassUID, content.SOPInstanceUID = Comprehensive3DSRStorage, "2.25.1"
    content.SpecificCharacterSet = "ISO_IR 192"
    content.file_meta = FileMetaDataset()
    content.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    target = BytesIO()
    dcmwrite(target, content, enforce_file_format=True)
    return target.getvalue()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["TEXT", "NUM", "CODE", "IMAGE", "WAVEFORM", "CONTAINER"]),
            st.text(max_size=200),
        ),
        max_size=6,
    )
)
def test_incomplete_items_of_other_makers_are_drawn_as_far_as_they_go(items):
    content, parent = Dataset(), Dataset()
    content.ContentSequence = [parent]
    parent.ValueType, parent.ContentSequence = "CONTAINER", []
    for value_type, text in items:
        child = Dataset()
        child.ValueType, child.TextValue = value_type, text.replace("\\", "/")
        parent.ContentSequence.append(child)
    lines = sr_text(document(content)).splitlines()
    assert all(line.isprintable() for line in lines)


def test_a_very_deep_tree_is_still_drawn():
    content = level = Dataset()
    for _ in range(60):
        child = Dataset()
        child.ValueType = "CONTAINER"
        level.ContentSequence = [child]
        level = child
    level.ValueType, level.TextValue = "TEXT", "the bottom"
    assert "the bottom" in sr_text(document(content))
