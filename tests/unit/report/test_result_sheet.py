"""What stands on a result sheet, and that all of it can be read: nothing is cut, nothing overlaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydicom import config

from hilum.domain import Code, Label, Release, ReportJob
from hilum.report import HeatMapSources
from hilum.report.heat_map.blocks import (
    GAP,
    PLAIN,
    WARNING,
    TextLine,
    _wrapped,
    drawable,
    font,
    words,
)
from hilum.report.heat_map.panel import Panel, pictured
from hilum.report.result_sheet.canvas import sheet_pixels
from hilum.report.result_sheet.content import FindingLine, SheetContent, sheet_content
from hilum.report.result_sheet.pages import sheet_pdf
from hilum.report.sources import Headers
from hilum_preprocessing.spec.operations import CentreCrop, Resize
from hilum_preprocessing.spec.placement import place
from testing.phantoms.phantom import make_study
from tests.support.reports.heat_maps import explained
from tests.support.reports.results import CONTEXT, make_release

NAMES = (
    "Enlarged cardiomediastinal silhouette with prominent hilar vessels of uncertain significance",
    "Lung opacity",
    "Pneumokoniose (Überprüfung nötig)",
    "A" * 90,
)
SHAPES = {"tall": (1600, 200), "wide": (200, 1600), "usual": (400, 320), "tiny": (16, 16)}


def content_of(
    folder: Path,
    release: Release | None = None,
    shape: tuple[int, int] = SHAPES["usual"],
    views: Sequence[str] = ("PA",),
    **changes: object,
) -> SheetContent:
    chosen = release or make_release(has_cam=True)
    rows, columns = shape
    datasets = make_study(21, "CR", tuple(views), rows=rows, columns=columns)
    job, sources = explained(datasets, chosen, folder)
    return said_of(job, chosen, dataclasses.replace(sources, **changes))


def said_of(job: ReportJob, release: Release, sources: HeatMapSources) -> SheetContent:
    return sheet_content(job, release, CONTEXT, sources, Headers(job).whose())


def rows_of(count: int) -> tuple[FindingLine, ...]:
    return tuple(
        FindingLine(
            f"{NAMES[number % 4]} {number}", "0.517", "52%", "0.5", "Present", number % 2 == 0
        )
        for number in range(count)
    )


def lines_in(pixels: NDArray[np.uint8], line: TextLine, width: int) -> int:
    """How often these words stand in the pixels exactly as they are drawn alone."""
    piece = np.asarray(words([line], width))
    inked = np.argwhere(piece.any(axis=-1))
    (top, left), (bottom, right) = inked.min(axis=0), inked.max(axis=0) + 1
    wanted = piece[top:bottom, left:right]
    middle = wanted[len(wanted) // 2].tobytes()
    found = 0
    for row in range(pixels.shape[0] - len(wanted)):
        line_bytes = pixels[row + len(wanted) // 2].tobytes()
        at = line_bytes.find(middle)
        while at >= 0:
            column = at // 3
            here = pixels[row : row + len(wanted), column : column + wanted.shape[1]]
            found += at % 3 == 0 and np.array_equal(here, wanted)
            at = line_bytes.find(middle, at + 1)
    return found


@pytest.mark.parametrize("has_probability", [True, False])
def test_each_of_eighteen_findings_can_be_read(tmp_path: Path, has_probability: bool) -> None:
    """The words of each row stand in the pixels as they are drawn alone: whole, with nothing over them."""
    rows = tuple(
        dataclasses.replace(
            row, text=f"Finding number {number:02d}", probability="52%" if has_probability else ""
        )
        for number, row in enumerate(rows_of(18))
    )
    pixels = sheet_pixels(dataclasses.replace(content_of(tmp_path), findings=rows))
    for row in rows:
        line = _as_drawn(row)
        assert lines_in(pixels, line, 600) == 1, row.text


def _as_drawn(row: FindingLine) -> TextLine:
    colour = WARNING if row.is_present else PLAIN
    return TextLine(row.text, colour=colour, is_bold=row.is_present)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("views", [("PA",), ("PA", "LATERAL", "AP")], ids=len)
def test_nothing_touches_the_edge_for_long_names_and_any_shape(
    tmp_path: Path, shape: tuple[int, int], views: Sequence[str]
) -> None:
    content = content_of(tmp_path, shape=shape, views=views)
    pixels = sheet_pixels(dataclasses.replace(content, findings=rows_of(18)))
    edge = np.ones(pixels.shape[:2], bool)
    edge[GAP:-GAP, GAP:-GAP] = False
    assert not pixels[edge].any()
    assert pixels.shape[1] == pixels[:, GAP:-GAP].shape[1] + 2 * GAP
    assert pixels.nbytes < 16 << 20


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=200), st.integers(60, 400), st.booleans())
def test_words_are_wrapped_and_never_cut(text: str, width: int, is_bold: bool) -> None:
    line = TextLine(text, is_bold=is_bold)
    parts = list(_wrapped(line, width))
    assert "".join("".join(parts).split()) == "".join(drawable(text).split())
    assert all(font(line.size, is_bold=is_bold).getlength(part) <= width for part in parts)
    assert words([line], width).width == width


def test_a_letter_that_the_font_lacks_loses_its_mark_or_is_a_question_mark() -> None:
    assert drawable("Zürich Łódź Ångström") == "Zürich Łódz Ångström"
    assert drawable("病院 Ελλάδα") == "?? ??????"


def test_the_caption_of_a_picture_and_the_name_of_its_margin_do_not_meet() -> None:
    """A low margin has room for one line, and that is the caption's."""
    shape = (620, 500)
    operations = [CentreCrop(), Resize(height=224, width=224, kernel="skimage")]
    grey = np.full(shape, 128, np.uint8)
    panel = Panel(grey, place(operations, shape), np.zeros((1, 1), np.float32), ())
    with_words = np.asarray(pictured(panel, 400)).astype(int)
    silent = np.asarray(pictured(dataclasses.replace(panel, captions=("",)), 400)).astype(int)
    caption = np.abs(with_words - silent).max(axis=-1) > 0
    margin_words = silent.min(axis=-1) > 250
    assert caption.any()
    assert margin_words.any(), "the margin above is named"
    rows = np.flatnonzero(caption.any(axis=1))
    assert not margin_words[rows.min() :].any()


def test_an_accession_number_without_end_is_cut(tmp_path: Path) -> None:
    """Else its drawing takes minutes, the process is ended each time, and no report goes out."""
    release = make_release(has_cam=True)
    (dataset,) = make_study(21, "CR", ("PA",), rows=64, columns=64)
    with config.disable_value_validation():
        dataset.AccessionNumber = "A" * 5000
    job, sources = explained([dataset], release, tmp_path)
    provenance = dict(said_of(job, release, sources).provenance)
    assert provenance["Accession number"] == f"{'A' * 600}... The structured report says the rest."


def test_the_sheet_says_where_a_picture_is_missing(tmp_path: Path) -> None:
    for changes, sentence in (
        ({"pictures": {}}, "gone from the archive"),
        ({"obstacle": "Drawing it ended the process that tried."}, "ended the process"),
        ({"maximum_pixels": 10}, "too_large"),
    ):
        content = content_of(tmp_path, **changes)
        (image,) = content.images
        assert image.panel is None
        assert image.caption.startswith("Image 1 of 1, PA: not shown. ")
        assert sentence in image.caption
        assert content.maps == ()
        assert sheet_pixels(content).any()


def test_maps_stand_on_it_where_the_release_gives_them_and_the_profile_allows_them(
    tmp_path: Path,
) -> None:
    assert len(content_of(tmp_path).maps) == 3
    assert content_of(tmp_path, shows_maps=False).maps == ()
    without = {"pictures": {}, "shows_maps": True}
    assert content_of(tmp_path, **without).maps == ()


def test_maps_of_another_reading_are_left_out_and_it_says_so(tmp_path: Path) -> None:
    release = make_release(has_cam=True)
    job, sources = explained(make_study(21, "CR", ("PA",), rows=64, columns=64), release, tmp_path)
    pictures = {
        uid: dataclasses.replace(
            item, maps=dataclasses.replace(item.maps, logits=tuple(x + 1 for x in item.maps.logits))
        )
        for uid, item in sources.pictures.items()
    }
    content = said_of(job, release, dataclasses.replace(sources, pictures=pictures))
    assert content.maps == ()
    assert content.map_note.startswith("No heat map: The image has been analysed again since")
    assert content.images[0].panel is not None


def test_of_too_many_findings_the_present_ones_come_first_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    from tests.support.reports import heat_maps, results

    labels = tuple(
        Label(f"f{number}", f"Finding {number}", Code("1", "99X", "x"), "A", 0.5)
        for number in range(80)
    )
    release = make_release(labels=labels)
    datasets = make_study(21, "CR", ("PA",), rows=64, columns=64)
    instance = results.instance_of(datasets[0])
    logits = tuple(-1.0 if number < 70 else 1.0 for number in range(80))
    reading = results.reading_of(instance, release, logits=logits)
    (result,) = results.results_of(results.study_job([instance], [reading]), release)
    content = said_of(
        results.report_job([instance], result),
        release,
        HeatMapSources({}, heat_maps.MAXIMUM_PIXELS),
    )
    assert len(content.findings) == 60
    assert [row.is_present for row in content.findings] == [True] * 10 + [False] * 50
    assert content.remark.endswith("20 more findings are in the structured report.")


def test_the_numbers_are_called_as_in_the_report(tmp_path: Path) -> None:
    calibrated = make_release(calibration={"method": "temperature", "temperature": 1.3})
    assert content_of(tmp_path, calibrated).has_probabilities
    plain = content_of(tmp_path, make_release())
    assert not plain.has_probabilities
    assert plain.subtitle == "densenet121@2, unverified, uncalibrated"
    untrained = content_of(tmp_path, make_release(is_trained=False))
    assert untrained.warnings[0].startswith("UNTRAINED WEIGHTS")
    assert untrained.remark == ""


@pytest.mark.parametrize("shape", [SHAPES["tall"], SHAPES["wide"]], ids=["tall", "wide"])
@pytest.mark.parametrize("findings", [5, 60])
def test_a_pdf_has_as_many_pages_as_the_longest_words_need(
    tmp_path: Path, shape: tuple[int, int], findings: int
) -> None:
    content = content_of(tmp_path, shape=shape, views=("PA", "LATERAL", "AP"))
    long = dataclasses.replace(
        content,
        findings=rows_of(findings),
        doubts=("word " * 120,) * 12,
        notes=("x" * 600,) * 12,
        disclaimer="A sentence of the site. " * 40,
    )
    for said in (content, long):
        pdf = sheet_pdf(said, 0.0)
        assert pdf.startswith(b"%PDF-1.4")
        assert pdf.rstrip().endswith(b"%%EOF")
