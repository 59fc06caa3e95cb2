"""The effect of each step on one image, as one picture.

Stored values, levels, the part that is kept, the wire tensor, and the histograms. It answers
whether a new model sees the same as in its training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from pydicom.dataset import Dataset

from hilum_preprocessing.decode import DEFAULT_MAXIMUM_PIXELS, StoredValues
from hilum_preprocessing.decode_options import decoding_for
from hilum_preprocessing.guard.level_doubts import level_flags
from hilum_preprocessing.guard.pixels import PixelLimits, look, pixel_flags
from hilum_preprocessing.guard.tags import check_tags, tag_flags
from hilum_preprocessing.header.body_parts import NO_WORDS, SiteWords
from hilum_preprocessing.levels.grayscale import LevelTable, level_table
from hilum_preprocessing.levels.picture_entry import entered
from hilum_preprocessing.prepare import prepare_stored
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.placement import Placement, place
from hilum_preprocessing.spec.sizing import geometry_of

Array = NDArray[Any]

_SIDE: Final = 360  # of a picture, and the width of a histogram
_PLOT: Final = 150
_GAP: Final = 16
_LINE: Final = 20
_BINS: Final = 120
_GROUND = (250, 250, 248)
_INK = (32, 32, 32)
_FAINT = (150, 150, 150)
_ACCENT = (200, 60, 20)


@dataclass(frozen=True, slots=True)
class _Panel:
    """One step: a picture (H, W) uint8 RGB-able, the values behind it, and its caption."""

    title: str
    picture: Image.Image
    values: Array
    notes: tuple[str, ...]


def explain(
    dataset: Dataset,
    spec: InputSpec,
    maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS,
    site: SiteWords = NO_WORDS,
) -> Image.Image:
    """An RGB picture of four panels side by side, a histogram under each.

    Raises NotAnalysable as `prepare` does.
    """
    view = check_tags(dataset, spec, site)
    stored = decoding_for(dataset, spec).of(dataset, maximum_pixels)
    of_header = (*level_flags(stored, spec), *tag_flags(dataset, spec, view, site))
    flags = (*stored.flags, *of_header, *pixel_flags(look(stored), PixelLimits()))
    seen = f"flags: {', '.join(flags)}" if flags else "no flags"
    return _drawn(f"{spec.version}   view {view}   {seen}", _panels(stored, spec))


def _panels(stored: StoredValues, spec: InputSpec) -> list[_Panel]:
    table = level_table(stored, spec)
    levels = table.values[stored.array.astype(np.int64) - table.first]
    pixels = _shown(levels)
    return [
        _Panel("1  stored values", _shown(stored.array), stored.array, _stored_notes(stored)),
        _Panel(
            "2  levels (LUTs, polarity, intensity)",
            pixels,
            levels,
            _level_notes(table, entered(stored, spec)),
        ),
        _geometry_panel(stored, spec, levels, pixels),
        _tensor_panel(stored, spec),
    ]


def _tensor_panel(stored: StoredValues, spec: InputSpec) -> _Panel:
    tensor = prepare_stored(stored, spec).cpu().numpy()[0]
    return _Panel("4  wire tensor", _shown(tensor), tensor, _tensor_notes(tensor, spec))


def _geometry_panel(
    stored: StoredValues, spec: InputSpec, levels: Array, pixels: Image.Image
) -> _Panel:
    placement = place(geometry_of(spec, stored.size, stored.pixel_aspect), stored.size)
    return _Panel(
        "3  geometry (inside the frame: read)",
        _framed(pixels, placement),
        _kept(levels, placement, 1 << stored.reduced),
        _geometry_notes(placement, spec),
    )


def _stored_notes(stored: StoredValues) -> tuple[str, ...]:
    kind = "MONOCHROME1 (low is bright)" if stored.is_monochrome1 else "MONOCHROME2"
    origin = ", of a picture file" if stored.is_picture else ""
    signed = "signed" if stored.is_signed else "unsigned"
    return (
        f"{stored.array.shape[0]} x {stored.array.shape[1]}, {stored.bits_stored} bits {signed}",
        kind + origin,
        f"{int(stored.array.min())} .. {int(stored.array.max())}",
        (
            f"padding {stored.padding[0]} .. {stored.padding[1]}"
            if stored.padding
            else "no padding value"
        ),
    )


def _level_notes(table: LevelTable, spec: InputSpec) -> tuple[str, ...]:
    used = table.values[table.observed]
    source = spec.source
    return (
        f"modality LUT {source.modality_lut}, VOI {source.voi}",
        f"MONOCHROME1 {source.monochrome1}",
        " > ".join(op.op for op in spec.intensity),
        f"{used.min():.4g} .. {used.max():.4g}",
    )


def _geometry_notes(placement: Placement, spec: InputSpec) -> tuple[str, ...]:
    top, left, bottom, right = placement.analysed
    seen = (bottom - top) * (right - left) / (placement.rows.source * placement.columns.source)
    return (
        " > ".join(op.op for op in spec.geometry),
        f"rows {top:.0f} .. {bottom:.0f}, columns {left:.0f} .. {right:.0f}",
        f"{100 * seen:.0f} % of the image is read",
        _aspect_note(placement.rows.scale / placement.columns.scale),
    )


def _aspect_note(stretch: float) -> str:
    if abs(stretch - 1) < 0.01:
        return "aspect ratio kept"
    return f"aspect ratio changed: rows {stretch:.2f} x columns"


def _tensor_notes(tensor: Array, spec: InputSpec) -> tuple[str, ...]:
    values = tensor.astype(np.float64)
    mean = _listed(spec.normalise.mean)
    std = _listed(spec.normalise.std)
    return (
        f"(1, {tensor.shape[0]}, {tensor.shape[1]}) {spec.wire_dtype}",
        f"{values.min():.4g} .. {values.max():.4g}, mean {values.mean():.4g}",
        f"then in the graph: (x - {mean}) / {std}",
        f"{spec.model_channels} channel{'s' if spec.model_channels > 1 else ''}",
    )


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _shown(values: Array) -> Image.Image:
    """(H, W) of any type, its own range stretched to 0..255, as large as a panel."""
    picture = Image.fromarray(_grey(values)).convert("RGB")
    picture.thumbnail((_SIDE, _SIDE), Image.Resampling.BOX)
    scale = min(_SIDE / picture.width, _SIDE / picture.height)
    return picture.resize(
        (max(1, round(picture.width * scale)), max(1, round(picture.height * scale))),
        Image.Resampling.NEAREST,
    )


def _grey(values: Array) -> NDArray[np.uint8]:
    """The smallest value black, the largest one white."""
    low = float(values.min())
    high = float(values.max())
    shares = (values.astype(np.float64) - low) / max(high - low, 1e-12)
    grey: NDArray[np.uint8] = (shares * 255).round().astype(np.uint8)
    return grey


def _kept(levels: Array, placement: Placement, step: int) -> Array:
    """The part that a crop leaves. After a reduced decode only every `step`-th pixel is there."""
    top, left, bottom, right = (-(-round(edge) // step) for edge in placement.analysed)
    return levels[top:bottom, left:right]


def _framed(picture: Image.Image, placement: Placement) -> Image.Image:
    """Darken the part that a crop leaves out."""
    left, top, right, bottom = _frame(picture, placement)
    framed = picture.point(lambda level: level // 3)
    framed.paste(picture.crop((left, top, right, bottom)), (left, top))
    ImageDraw.Draw(framed).rectangle((left, top, right - 1, bottom - 1), outline=_ACCENT, width=2)
    return framed


def _frame(picture: Image.Image, placement: Placement) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the analysed part, in pixels of the picture of its source."""
    top, left, bottom, right = placement.analysed
    across = picture.width / placement.columns.source
    down = picture.height / placement.rows.source
    return round(left * across), round(top * down), round(right * across), round(bottom * down)


def _drawn(headline: str, panels: list[_Panel]) -> Image.Image:
    notes = max(len(panel.notes) for panel in panels)
    sheet = Image.new("RGB", _sheet_size(len(panels), notes), _GROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((_GAP, _GAP // 2), headline, _INK, font=ImageFont.load_default(15))
    for index, panel in enumerate(panels):
        _draw_panel(sheet, draw, panel, (_GAP + index * (_SIDE + _GAP), _GAP + _LINE), notes)
    return sheet


def _sheet_size(panels: int, notes: int) -> tuple[int, int]:
    """(width, height) for so many panels with so many lines of notes."""
    width = _GAP + panels * (_SIDE + _GAP)
    height = 3 * _GAP + 2 * _LINE + _SIDE + notes * _LINE + _PLOT + 2 * _LINE
    return width, height


def _draw_panel(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, panel: _Panel, at: tuple[int, int], notes: int
) -> None:
    """Title, picture, notes and histogram from top to bottom. `notes`: lines to leave room for."""
    left, top = at
    draw.text((left, top), panel.title, _INK, font=ImageFont.load_default(14))
    top += _LINE
    sheet.paste(panel.picture, _centred(panel.picture, left, top))
    top += _SIDE + _GAP // 2
    for line, note in enumerate(panel.notes):
        draw.text((left, top + line * _LINE), note, _INK, font=ImageFont.load_default(13))
    _draw_histogram(draw, panel.values, (left, top + notes * _LINE + _GAP // 2))


def _centred(picture: Image.Image, left: int, top: int) -> tuple[int, int]:
    """Where a picture begins in the middle of its square."""
    return left + (_SIDE - picture.width) // 2, top + (_SIDE - picture.height) // 2


def _draw_histogram(draw: ImageDraw.ImageDraw, values: Array, at: tuple[int, int]) -> None:
    """On a logarithmic scale: a few pixels at an end matter."""
    left, top = at
    foot = top + _PLOT
    counts, edges = np.histogram(values, _BINS)
    _draw_bars(draw, _bar_heights(counts), left, foot)
    draw.line((left, foot + 1, left + _SIDE, foot + 1), fill=_FAINT)
    _draw_scale(draw, f"{edges[0]:.4g}", f"{edges[-1]:.4g}", (left, foot + 4))


def _bar_heights(counts: Array) -> Array:
    heights: Array = np.log1p(counts) / max(np.log1p(counts.max()), 1e-12) * _PLOT
    return heights


def _draw_bars(draw: ImageDraw.ImageDraw, heights: Array, left: int, foot: int) -> None:
    step = _SIDE / _BINS
    for index, bar in enumerate(heights):
        if bar:
            box = (left + index * step, foot - bar, left + (index + 1) * step - 1, foot)
            draw.rectangle(box, fill=_INK)


def _draw_scale(draw: ImageDraw.ImageDraw, low: str, high: str, at: tuple[int, int]) -> None:
    """Both ends of the values, and the unit of the bars between them."""
    left, top = at
    font = ImageFont.load_default(12)
    draw.text((left, top), low, _FAINT, font=font)
    draw.text((left + _SIDE, top), high, _FAINT, font=font, anchor="ra")
    draw.text((left + _SIDE // 2, top), "log count", _FAINT, font=font, anchor="ma")
