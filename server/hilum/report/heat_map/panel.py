"""One panel: a finding over an image, with a ruler of cells and the bar of colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from hilum.report.heat_map import overlay
from hilum.report.heat_map.blocks import (
    BACKGROUND,
    FAINT,
    GAP,
    NOTE_SIZE,
    PLAIN,
    Picture,
    TextLine,
    beside,
    font,
    stacked,
    words,
)
from hilum_preprocessing.spec.placement import Placement, PlacementAxis

CAPTIONS: Final = (  # on the picture: the first that fits
    "AI heat map - not for diagnosis",
    "not for diagnosis",
)  # the first that fits
_MEASURES: Final = ("added to the logit by a cell", "added to the logit", "")
_BAR_HEIGHT = 22
_TICK = 7
_LINE: Final = NOTE_SIZE + 10  # the height of a line in a picture, with its edge
_LEAST_WIDTH: Final = 300  # of the words, where an image is very narrow


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: `grey` (rows, columns), `cells` (h, w) of logit contributions, and a title."""

    grey: NDArray[np.uint8]
    placement: Placement
    cells: NDArray[np.float32]
    heading: Sequence[TextLine]
    captions: Sequence[str] = CAPTIONS

    @property
    def peak(self) -> float:
        """The strongest cell for the finding, 0 if there is no such cell.

        It is the end of the colour bar.
        """
        return max(0.0, float(self.cells.max()))


def beside_each_other(panels: Sequence[Panel], side: int) -> Picture:
    """The panels of one image in a row, their pictures at one height.

    The longer side of a picture is `side`.
    """
    pictures = [pictured(panel, side) for panel in panels]
    widths = [max(picture.width, _LEAST_WIDTH) for picture in pictures]
    headings = [words(panel.heading, width) for panel, width in zip(panels, widths, strict=True)]
    height = max(heading.height for heading in headings)
    headings = [heading.crop((0, 0, heading.width, height)) for heading in headings]
    scales = [
        _scale(panel, picture.width, width)
        for panel, picture, width in zip(panels, pictures, widths, strict=True)
    ]
    return beside(
        [stacked(pieces, gap=5) for pieces in zip(headings, pictures, scales, strict=True)]
    )


def with_scale(panel: Panel, side: int) -> Picture:
    """Return the picture of a panel with its ruler and bar, without its heading."""
    picture = pictured(panel, side)
    return stacked([picture, _scale(panel, picture.width, max(picture.width, _LEAST_WIDTH))], 5)


def _scale(panel: Panel, picture_width: int, width: int) -> Picture:
    return stacked(
        [
            _ruler(panel.placement.columns, panel.cells.shape[1], picture_width),
            _bar(panel, width),
            _bar_words(panel, width),
        ],
        3,
    )


def pictured(panel: Panel, side: int) -> Picture:
    """Return the source with the overlay; the part not analysed is dimmed, hatched and named."""
    grey = _fitted(panel.grey, side)
    shape = (grey.shape[0], grey.shape[1])
    strength = overlay.spread(panel.cells, panel.placement, shape)
    strength = np.clip(strength / panel.peak, 0, 1) if panel.peak else np.zeros_like(strength)
    inside = overlay.analysed(panel.placement, shape)
    picture = Image.fromarray(overlay.hatched(overlay.coloured(grey, strength), inside))
    _name_margins(picture, inside)
    fitting = (
        text for text in panel.captions if font(NOTE_SIZE).getlength(text) + 16 <= picture.width
    )
    _write(picture, next(fitting, ""), (8, picture.height - _LINE))
    return picture


def _fitted(grey: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Scale a picture so that its longer side has `side` pixels."""
    rows, columns = grey.shape
    factor = side / max(rows, columns)
    size = (max(1, round(columns * factor)), max(1, round(rows * factor)))
    return np.asarray(
        Image.fromarray(grey).resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    )


def _name_margins(picture: Picture, inside: NDArray[np.bool_]) -> None:
    """`not analysed` in each margin that has room for it, upright at the sides.

    The lowest line is the caption's.
    """
    rows = np.flatnonzero(inside.any(axis=1))
    columns = np.flatnonzero(inside.any(axis=0))
    if not len(rows) or not len(columns):
        return
    word = "not analysed"
    length = round(font(NOTE_SIZE).getlength(word))
    height = picture.height - _LINE
    if length < height:
        for middle in _margins(columns, picture.width):
            _write_upright(picture, word, (middle, (height - length) // 2))
    if length < picture.width:
        for middle in _margins(rows, height):
            _write(picture, word, ((picture.width - length) // 2, middle))


def _margins(inside: NDArray[np.intp], size: int) -> Iterator[int]:
    """Yield where a line of text begins in the middle of each margin that has room for it."""
    for start, stop in ((0, inside[0]), (inside[-1] + 1, size)):
        if stop - start >= _LINE:
            yield int(start + stop - _LINE) // 2


def _write(picture: Picture, text: str, place: tuple[int, int]) -> None:
    """White with a black edge: legible on lung and on bone."""
    ImageDraw.Draw(picture).text(
        place,
        text,
        fill=(255, 255, 255),
        font=font(NOTE_SIZE),
        stroke_width=1,
        stroke_fill=(0, 0, 0),
    )


def _write_upright(picture: Picture, text: str, place: tuple[int, int]) -> None:
    length = round(font(NOTE_SIZE).getlength(text)) + 8
    box = (place[0], place[1], place[0] + _LINE, place[1] + length)
    turned = picture.crop(box).rotate(-90, expand=True)
    _write(turned, text, (4, 3))
    picture.paste(turned.rotate(90, expand=True), place)


def _ruler(axis: PlacementAxis, cells: int, width: int) -> Picture:
    """Return a ruler with a tick at each border of a cell, so that the map does not look finer."""
    strip = Image.new("RGB", (width, _TICK + 1), BACKGROUND)
    draw = ImageDraw.Draw(strip)
    places = [min(width - 1, round(at / axis.source * width)) for at in _borders(axis, cells)]
    if places:
        draw.line([(places[0], 0), (places[-1], 0)], fill=FAINT)
    for place in places:
        draw.line([(place, 0), (place, _TICK)], fill=FAINT)
    return strip


def _borders(axis: PlacementAxis, cells: int) -> list[float]:
    """Return the borders of the cells that are in the source."""
    parts = [part for index in range(cells) if (part := axis.cell(index, cells)) is not None]
    return [parts[0][0], *(part[1] for part in parts)] if parts else []


def _bar(panel: Panel, width: int) -> Picture:
    """Return the colours on black, mid grey and white, from 0 at the left to the peak."""
    strength = np.broadcast_to(np.linspace(0, 1, width, dtype=np.float32), (_BAR_HEIGHT, width))
    if not panel.peak:
        strength = np.zeros_like(strength)
    ground = np.repeat(np.array([0, 128, 255], np.uint8), [8, 6, 8])[:, None]
    return Image.fromarray(overlay.coloured(np.broadcast_to(ground, strength.shape), strength))


def _bar_words(panel: Panel, width: int) -> Picture:
    """Return the ends of the bar, and the name of its measure."""
    strip = Image.new("RGB", (width, NOTE_SIZE + 6), BACKGROUND)
    draw = ImageDraw.Draw(strip)
    used = font(NOTE_SIZE)
    end = f"+{panel.peak:.3g}" if panel.peak else "no cell above 0"
    draw.text((0, 2), "0", fill=PLAIN, font=used)
    draw.text((width - used.getlength(end), 2), end, fill=PLAIN, font=used)
    room = width - 2 * used.getlength(end) - 2 * GAP
    middle = next(text for text in _MEASURES if used.getlength(text) <= room or not text)
    draw.text(((width - used.getlength(middle)) / 2, 2), middle, fill=FAINT, font=used)
    return strip
