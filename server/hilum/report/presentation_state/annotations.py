"""Text and lines over one image as items of the Graphic Annotation Sequence (PS3.3 C.10.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from highdicom.color import CIELabColor
from highdicom.pr import (
    AnnotationUnitsValues,
    GraphicAnnotation,
    GraphicLayer,
    GraphicObject,
    GraphicTypeValues,
    TextJustificationValues,
    TextObject,
)
from pydicom.dataset import Dataset

from hilum.report.presentation_state.contours import Points
from hilum.report.presentation_state.source_image import SourceDisplay

# No grey is like these. Viewers hide a layer by its name.
TEXT_LAYER: Final = GraphicLayer(
    "AI TEXT", 2, "AI result in words, not for diagnosis", CIELabColor(92.0, -10.0, 80.0)
)
LINE_LAYER: Final = GraphicLayer(
    "AI MAP", 1, "Contours of activation maps, not for diagnosis", CIELabColor(74.0, 25.0, 75.0)
)
_LONGEST_TEXT: Final = 1024  # ST
_LEFT: Final = 0.01
_TOP: Final = 0.01
_HEAD_WIDTH: Final = 0.44
_LINE_HEIGHT: Final = 0.017  # of the displayed area: nine lines are a seventh of it
_BESIDE: Final = (0.0, 1.1, 2.2, -1.1, -2.2)  # widths from the top of a line to its number
_LEAST_MARK: Final = 4.0  # pixels
_MARK: Final = 0.03  # of the shorter side: the height of a contour's number


def text_annotation(image: Dataset, head: Sequence[str], foot: Sequence[str]) -> GraphicAnnotation:
    """Return the block at the top left and the disclaimer at the bottom.

    Units are DISPLAY: parts of the displayed area, so that words have the same place on each image.
    """
    height = len(head) * _LINE_HEIGHT
    texts = [_block(head, (_LEFT, _TOP, _LEFT + _HEAD_WIDTH, _TOP + height))]
    if foot:
        top = 1 - _TOP - len(foot) * _LINE_HEIGHT
        texts.append(_block(foot, (_LEFT, top, 1 - _LEFT, 1 - _TOP)))
    return GraphicAnnotation([image], TEXT_LAYER, text_objects=texts)


def _block(lines: Sequence[str], box: tuple[float, float, float, float]) -> TextObject:
    """Return lines as one text: viewers that choose their own size of letters keep them apart."""
    return TextObject(
        "\r\n".join(lines)[:_LONGEST_TEXT],
        AnnotationUnitsValues.DISPLAY,
        bounding_box=box,
        text_justification=TextJustificationValues.LEFT,
    )


def line_annotation(
    image: Dataset, shown: SourceDisplay, contours: Mapping[int, Sequence[Points]]
) -> GraphicAnnotation:
    """Return closed lines in pixels of the source, each map's with its number beside the largest.

    `contours`: by the number that the words give the finding.
    """
    lines = [
        GraphicObject(GraphicTypeValues.POLYLINE, line, AnnotationUnitsValues.PIXEL)
        for found in contours.values()
        for line in found
    ]
    marks = list(_marks(shown, contours))
    return GraphicAnnotation([image], LINE_LAYER, graphic_objects=lines, text_objects=marks)


def _marks(shown: SourceDisplay, contours: Mapping[int, Sequence[Points]]) -> Iterator[TextObject]:
    """Yield the numbers, each above the top of its largest line and beside those before it."""
    side = min(shown.rows, shown.columns)
    height = min(max(_LEAST_MARK, _MARK * side), side / 2)
    width = 1.5 * height
    placed: list[tuple[float, float]] = []
    for number, lines in contours.items():
        highest = lines[0][lines[0][:, 1].argmin()]
        top = _within(float(highest[1]) - height, shown.rows - height)
        places = [
            (_within(float(highest[0]) + step * width, shown.columns - width), top)
            for step in _BESIDE
        ]
        # Maps of several findings often agree.
        free = [place for place in places if not _is_taken(place, placed, (width, height))]
        left, _ = place = (free or places)[0]
        placed.append(place)
        yield TextObject(
            str(number),
            AnnotationUnitsValues.PIXEL,
            bounding_box=(left, top, left + width, top + height),
            text_justification=TextJustificationValues.LEFT,
        )


def _is_taken(
    place: tuple[float, float], placed: Sequence[tuple[float, float]], size: tuple[float, float]
) -> bool:
    return any(
        abs(place[0] - left) < size[0] and abs(place[1] - top) < size[1] for left, top in placed
    )


def _within(place: float, most: float) -> float:
    return round(max(0.0, min(place, most)), 2)
