"""A result sheet as pixels, in the blocks of the heat map. It is as high as its words need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hilum.report.heat_map.blocks import (
    FAINT,
    GAP,
    NOTE_SIZE,
    PLAIN,
    TITLE_SIZE,
    WARNING,
    Picture,
    TextLine,
    beside,
    blank,
    framed,
    stacked,
    table,
    words,
)
from hilum.report.heat_map.panel import beside_each_other, pictured
from hilum.report.result_sheet.content import FindingLine, SheetContent, SheetImage

WIDTH: Final = 1280
_PICTURES: Final = 460  # the width of the left column
_COLUMN_GAP: Final = 2 * GAP
_TALLEST: Final = 1.25  # of the width of its column
_WORDS: Final = WIDTH - _PICTURES - _COLUMN_GAP
_MAP_SIDE: Final = 400
_NAME_WIDTH: Final = 170
_NUMBERS: Final = (90, 105, 130, 140)  # score, probability, operating point, decision


def sheet_pixels(content: SheetContent) -> NDArray[np.uint8]:
    """Return (height, width, 3). The same content gives the same pixels."""
    pieces = [words(_title(content), WIDTH), _body(content)]
    if content.maps:
        pieces.append(beside_each_other(content.maps, _MAP_SIDE))
    if content.map_note:
        pieces.append(words([_note(content.map_note)], WIDTH))
    pieces += [
        _remarks(content),
        words([TextLine(content.disclaimer, colour=WARNING)], WIDTH),
    ]
    return np.asarray(framed(stacked(pieces)))


def _title(content: SheetContent) -> list[TextLine]:
    return [
        TextLine(content.title, TITLE_SIZE, WARNING, is_bold=True),
        TextLine(content.subtitle),
        *(TextLine(text, colour=WARNING) for text in content.warnings),
    ]


def _body(content: SheetContent) -> Picture:
    """Return pictures at the left and findings at the right, or words over the whole width."""
    if not content.images:
        return stacked(list(_said(content, WIDTH)))
    return beside(
        [_images(content.images), stacked(list(_said(content, _WORDS)))],
        _COLUMN_GAP,
    )


def _said(content: SheetContent, width: int) -> Iterator[Picture]:
    if content.reason:
        yield words([TextLine(content.reason, colour=WARNING)], width)
    if content.findings:
        yield _findings(content, width)
        if content.remark:
            yield words([_note(content.remark)], width)
    yield _provenance(content, width)


def _images(images: Sequence[SheetImage]) -> Picture:
    """Return one large picture, or two in a row."""
    in_a_row = 1 if len(images) == 1 else 2
    width = (_PICTURES - GAP * (in_a_row - 1)) // in_a_row
    pieces = [_captioned(image, width) for image in images]
    rows = [
        beside(pieces[start : start + in_a_row], GAP) for start in range(0, len(pieces), in_a_row)
    ]
    return stacked([*rows, blank(_PICTURES, 1)])


def _captioned(image: SheetImage, width: int) -> Picture:
    caption = words([TextLine(image.caption, NOTE_SIZE)], width)
    if image.panel is None:
        return caption
    rows, columns = image.panel.grey.shape
    factor = min(width / columns, width * _TALLEST / rows)
    return stacked([pictured(image.panel, round(max(rows, columns) * factor)), caption], 4)


def _findings(content: SheetContent, width: int) -> Picture:
    numbers = _NUMBERS if content.has_probabilities else (_NUMBERS[0], *_NUMBERS[2:])
    widths = (width - sum(numbers) - GAP * len(numbers), *numbers)
    head = ["Finding", "Score", "Probability", "Operating point", "Result"]
    named = head if content.has_probabilities else [*head[:2], *head[3:]]
    rows = [[TextLine(text, NOTE_SIZE, FAINT) for text in named]]
    rows += [_cells(row, has_probability=content.has_probabilities) for row in content.findings]
    return table(rows, widths)


def _cells(row: FindingLine, *, has_probability: bool) -> list[TextLine]:
    said = [row.text, row.score, row.probability, row.operating_point, row.decision]
    shown = said if has_probability else [*said[:2], *said[3:]]
    colour = WARNING if row.is_present else PLAIN
    return [TextLine(text, colour=colour, is_bold=row.is_present) for text in shown]


def _remarks(content: SheetContent) -> Picture:
    lines = []
    if content.doubts:
        lines.append(TextLine("In doubt, or not used", NOTE_SIZE, WARNING, is_bold=True))
        lines += [TextLine(text, NOTE_SIZE, WARNING) for text in content.doubts]
    lines += [_note(text) for text in content.notes]
    return words(lines, WIDTH)


def _provenance(content: SheetContent, width: int) -> Picture:
    rows = [[_note(name), TextLine(value, NOTE_SIZE)] for name, value in content.provenance]
    return table(rows, (_NAME_WIDTH, width - _NAME_WIDTH - GAP))


def _note(text: str) -> TextLine:
    return TextLine(text, NOTE_SIZE, FAINT)
