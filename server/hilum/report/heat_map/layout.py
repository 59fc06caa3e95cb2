"""The whole picture: a heading, a row of panels for each image, and the caveats for a reader.

Not larger than needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hilum.domain import Decision, Finding, Release, Result, SourceImage
from hilum.report.context import ReportContext
from hilum.report.heat_map.blocks import (
    FAINT,
    NOTE_SIZE,
    TITLE_SIZE,
    WARNING,
    TextLine,
    framed,
    stacked,
    words,
)
from hilum.report.heat_map.panel import Panel, beside_each_other
from hilum.report.numbers import percent, score_in_words
from hilum.report.wording import DECISIONS
from hilum_preprocessing.spec.placement import Placement

WITHDRAWN: Final = "Earlier heat maps of this series no longer hold."
_LONGEST_SIDE: Final = 1024
_PANEL_PIXELS: Final = (
    1_500_000  # of all panels together: with its words a sheet stays below about 8 MB
)
_LEAST_WIDTH: Final = 520


@dataclass(frozen=True, slots=True)
class MapRow:
    """One image and its panels."""

    image: SourceImage
    panels: Sequence[Panel]


def map_pixels(
    rows: Sequence[MapRow], result: Result, release: Release, context: ReportContext
) -> NDArray[np.uint8]:
    """Return (height, width, 3). The same rows give the same pixels."""
    side = _side(sum(len(row.panels) for row in rows))
    pictures = [beside_each_other(row.panels, side) for row in rows]
    width = max(_LEAST_WIDTH, *(picture.width for picture in pictures))
    pieces = [words(_title(result, release), width)]
    for number, (row, picture) in enumerate(zip(rows, pictures, strict=True), 1):
        pieces += [words([TextLine(_image_name(row, number, result))], width), picture]
    pieces.append(words(_notes(rows, result, context), width))
    return np.asarray(framed(stacked(pieces)))


def withdrawal_pixels(
    result: Result, release: Release, context: ReportContext, why: str
) -> NDArray[np.uint8]:
    """The sheet of a revision that shows nothing.

    It stands after those that did, in their series, and says that they hold no more.
    """
    said = [
        *_title(result, release),
        TextLine(why),
        TextLine(WITHDRAWN),
        TextLine(f"Result revision {result.revision}. {context.disclaimer}", NOTE_SIZE, FAINT),
    ]
    return np.asarray(framed(words(said, _LEAST_WIDTH)))


def _side(panels: int) -> int:
    return min(_LONGEST_SIDE, math.isqrt(_PANEL_PIXELS // panels))


def _title(result: Result, release: Release) -> list[TextLine]:
    warnings = (
        []
        if result.is_trained
        else [
            TextLine(
                "UNTRAINED WEIGHTS: a technical test; the colours mean nothing medical.",
                colour=WARNING,
            )
        ]
    )
    return [
        TextLine("AI heat map - NOT FOR DIAGNOSIS", TITLE_SIZE, WARNING),
        TextLine(f"{release.id}, unverified{'' if result.is_calibrated else ', uncalibrated'}"),
        *warnings,
    ]


def _image_name(row: MapRow, number: int, result: Result) -> str:
    count = sum(item.is_used for item in result.source_images)
    view = row.image.view
    named = f", {view}" if view and view != "UNKNOWN" else ""
    return (
        f"Image {number} of {count} analysed{named}:"
        f" {resolution(row.panels[0].placement, row.panels[0].cells.shape)}"
    )


def heading(finding: Finding, image: SourceImage, result: Result) -> list[TextLine]:
    """The finding, its number as it is called in the report, and the decision.

    The image's own score where there are several.
    """
    several = sum(item.is_used for item in result.source_images) > 1
    said = (
        "uncalibrated"
        if finding.probability is None
        else f"probability {percent(finding.probability)}, calibrated"
    )
    if finding.decision is Decision.UNDECIDED:
        decided = DECISIONS[finding.decision]
    else:
        decided = f"{DECISIONS[finding.decision]} (score at or above {finding.operating_point})"
    lines = [
        TextLine(f"{finding.text}: {decided}"),
        TextLine(f"score {score_in_words(finding)}, {said}", NOTE_SIZE),
    ]
    own = image.scores.get(finding.key)
    if several and own is not None:
        lines.append(TextLine(f"score of this image {own:.3f}", NOTE_SIZE))
    return lines


def _notes(rows: Sequence[MapRow], result: Result, context: ReportContext) -> list[TextLine]:
    is_cut = any(
        panel.placement.analysed != _whole(panel.placement) for row in rows for panel in row.panels
    )
    said = [
        (
            "Class activation map, in cells of the source's size above; the colours are smoothed"
            " between them and outline no lesion."
        ),
        (
            "Coloured: cells that raised the score. Cells that lowered it are not. Each panel has a"
            " scale of its own: see its bar."
        ),
        *(["Hatched: cut off before the analysis, not analysed."] if is_cut else []),
        f"Result revision {result.revision}. {context.disclaimer}",
    ]
    return [TextLine(text, NOTE_SIZE, FAINT) for text in said]


def _whole(placement: Placement) -> tuple[float, float, float, float]:
    return (0.0, 0.0, float(placement.rows.source), float(placement.columns.source))


def resolution(placement: Placement, grid: tuple[int, ...]) -> str:
    """`7 x 7 cells, one cell = 293 x 293 px`."""
    height, width = placement.cell_size((grid[0], grid[1]))
    return f"{grid[1]} x {grid[0]} cells, one cell = {width:.0f} x {height:.0f} px"
