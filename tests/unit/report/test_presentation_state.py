"""The words and lines of a presentation state: short, whole, and around what the map says."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hilum.domain import Decision, Finding, Result
from hilum.report.presentation_state.contours import FRACTION, contours_of
from hilum.report.presentation_state.lines import (
    FOOT_COLUMNS,
    LINE_COLUMNS,
    fitted,
    foot_lines,
    head_lines,
    width_of,
)
from hilum.report.presentation_state.source_image import source_display
from hilum_preprocessing import InputSpec
from hilum_preprocessing.spec.operations import CentreCrop, Pad, Resize
from hilum_preprocessing.spec.placement import Placement, place
from testing.phantoms.phantom import make_study
from tests.support.reports.results import CONTEXT, instance_of, make_release, report_of

RELEASE = make_release()
SPEC = InputSpec.from_mapping(RELEASE.input_spec)


@pytest.fixture(scope="module")
def result() -> Result:
    return report_of(make_study(3, "CR", ("PA",), rows=32, columns=32), RELEASE).result


def named(result: Result, *names: str, **changes: object) -> Result:
    (first, *_) = result.findings
    findings = tuple(
        dataclasses.replace(first, key=f"f{number}", text=name, **changes)
        for number, name in enumerate(names)
    )
    return dataclasses.replace(result, findings=findings)


@given(name=st.text(max_size=200))
@settings(deadline=None)
def test_a_line_has_its_numbers_whatever_the_name(result: Result, name: str) -> None:
    lines = head_lines(named(result, name), RELEASE, {"f0": 1})
    assert lines[2].startswith("[1] ")
    assert lines[2].endswith(": Present, 0.610 (at 0.5)")
    assert all(width_of(line) <= LINE_COLUMNS for line in lines)
    assert not any(ord(letter) < 32 for line in lines for letter in line)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("Nodule", "Nodule"),
        ("Pleural effusion", "Pleur..."),
        ("右側の胸水", "右側..."),
        ("é" * 9, "ééééé..."),
        ("a\r\nb\tc\x1b", "a b c"),
    ],
)
def test_a_text_is_cut_by_the_columns_that_its_letters_take(text: str, cut: str) -> None:
    assert fitted(text, 8) == cut


def test_present_findings_come_first_and_the_rest_is_counted(result: Result) -> None:
    many = named(result, *"abcdefghi")
    decided = [Decision.ABSENT, Decision.UNDECIDED, *[Decision.PRESENT] * 7]
    findings: list[Finding] = [
        dataclasses.replace(item, decision=decision)
        for item, decision in zip(many.findings, decided, strict=True)
    ]
    lines = head_lines(dataclasses.replace(many, findings=tuple(findings)), RELEASE, {})
    assert [line[0] for line in lines[2:-1]] == ["c", "d", "e", "f", "g"]
    assert lines[-1] == "4 more (2 of them present): see the report."


def test_a_long_release_keeps_its_state(result: Result) -> None:
    release = dataclasses.replace(RELEASE, name="n" * 80)
    line = head_lines(dataclasses.replace(result, revision=3), release, {})[1]
    assert line.endswith("..., unverified, uncalibrated, rev. 3")
    assert width_of(line) <= LINE_COLUMNS


def test_a_long_disclaimer_has_two_lines() -> None:
    context = dataclasses.replace(CONTEXT, disclaimer="word " * 100)
    lines = foot_lines(context, "note")
    assert (len(lines), lines[0]) == (3, "note")
    assert lines[-1].endswith("...")
    assert all(width_of(line) <= FOOT_COLUMNS for line in lines)


def whole(rows: int, columns: int) -> Placement:
    return place((Resize(224, 224, "skimage"),), (rows, columns))


def inside(line: NDArray[np.float64], x: float, y: float) -> bool:
    """Whether a point is inside a closed line, by the crossings to its right."""
    count = 0
    for (x0, y0), (x1, y1) in itertools.pairwise(line):
        if (y0 > y) != (y1 > y) and x < x0 + (y - y0) * (x1 - x0) / (y1 - y0):
            count += 1
    return count % 2 == 1


@given(
    row=st.integers(0, 6),
    column=st.integers(0, 6),
    size=st.sampled_from([(700, 700), (70, 700), (3000, 2400), (16, 16), (9, 7)]),
)
@settings(deadline=None, max_examples=40)
def test_a_line_is_around_the_highest_cell_and_no_other(
    row: int, column: int, size: tuple[int, int]
) -> None:
    cells = np.zeros((7, 7), np.float32)
    cells[row, column] = 2.0
    lines = contours_of(cells, whole(*size))
    cell = (size[1] / 7, size[0] / 7)
    (line,) = lines
    assert (line[0] == line[-1]).all()
    assert line.min() >= 0
    assert (line.max(axis=0) <= (size[1], size[0])).all()
    if min(size) > 16:
        assert inside(line, (column + 0.5) * cell[0], (row + 0.5) * cell[1])
        other = ((column + 3) % 7 + 0.5, (row + 3) % 7 + 0.5)
        assert not inside(line, other[0] * cell[0], other[1] * cell[1])


def test_two_places_have_two_lines_and_a_weak_one_none() -> None:
    cells = np.zeros((7, 7), np.float32)
    cells[1, 1], cells[5, 5], cells[1, 5] = 1.0, 0.9, FRACTION * 0.9
    lines = contours_of(cells, whole(700, 700))
    assert len(lines) == 2
    assert all(any(inside(line, *place) for line in lines) for place in ((150, 150), (550, 550)))
    assert not any(inside(line, 550, 150) for line in lines)


def test_a_map_that_raised_nothing_has_no_line() -> None:
    assert contours_of(np.full((7, 7), -1.0, np.float32), whole(70, 70)) == []
    assert contours_of(np.zeros((7, 7), np.float32), whole(70, 70)) == []


def test_a_map_that_is_high_everywhere_is_outlined_where_the_model_saw() -> None:
    placement = place((CentreCrop(), Resize(224, 224, "skimage")), (300, 200))
    (line,) = contours_of(np.ones((7, 7), np.float32), placement)
    assert np.allclose((line.min(axis=0), line.max(axis=0)), ((0, 50), (200, 250)), atol=3)


@pytest.mark.parametrize(
    "changes",
    [
        {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"},
        {"NumberOfFrames": "2"},
        {"PhotometricInterpretation": "PALETTE COLOR"},
        {"Rows": None},
    ],
)
def test_what_no_presentation_state_can_show_is_left_out(changes: dict[str, object]) -> None:
    (image,) = make_study(3, "SC", ("PA",), rows=32, columns=32)
    for keyword, value in changes.items():
        setattr(image, keyword, value)
    assert source_display(instance_of(image), SPEC) is None


def test_a_header_that_cannot_be_read_is_left_out() -> None:
    (image,) = make_study(3, "CR", ("PA",), rows=32, columns=32)
    broken = instance_of(image, header=b"\x40\x00\x75\x02OB\x02\x00\x01\x20")
    assert source_display(broken, SPEC) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"WindowWidth": "0"},
        {"WindowWidth": ["10", "20"], "WindowCenter": "5"},
        {"RescaleSlope": "0"},
        {"PixelSpacing": ["0", "0.1"]},
        {"PixelSpacing": "0.1"},
        {"PixelAspectRatio": ["0", "1"]},
        {"ShutterShape": "STAR"},
        {"ShutterShape": "CIRCULAR", "RadiusOfCircularShutter": "10"},
        {
            "ShutterShape": "CIRCULAR",
            "CenterOfCircularShutter": ["1", "1"],
            "RadiusOfCircularShutter": "99999999999",
        },
        {"ImagerPixelSpacing": ["1e300", "1e-5"]},
        {"ImagerPixelSpacing": ["1e-300", "1e5"]},
    ],
)
def test_a_value_that_makes_no_sense_counts_as_absent(changes: dict[str, object]) -> None:
    from pydicom import config

    (image,) = make_study(3, "CR", ("PA",), rows=32, columns=32)
    with config.disable_value_validation():
        for keyword, value in changes.items():
            setattr(image, keyword, value)
        shown = source_display(instance_of(image), SPEC)
    assert shown is not None
    assert (shown.shutter, min(shown.aspect) > 0) == ({}, True)
    assert max(shown.aspect) <= 1000, "as IS it has at most 12 characters (PS3.5 6.2)"
    assert shown.spacing is None or "PixelSpacing" not in changes


def test_a_padding_around_the_picture_is_no_place_in_it() -> None:
    placement = place((Pad(0.0), Resize(224, 224, "skimage")), (100, 200))
    cells = np.zeros((7, 7), np.float32)
    cells[0, 3] = 1.0
    for line in contours_of(cells, placement):
        assert line.min() >= 0
        assert (line.max(axis=0) <= (200, 100)).all()
