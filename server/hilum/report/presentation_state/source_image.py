"""How a source image says that it is displayed: size, LUTs, polarity and shutter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from pydicom.dataset import Dataset

from hilum.domain import Instance
from hilum.errors import NotAnalysed
from hilum.report.headers.header import raw_header
from hilum.report.presentation_state.contours import Points
from hilum.report.presentation_state.lines import fitted
from hilum_preprocessing import InputSpec, NotAnalysable
from hilum_preprocessing.header.elements import first_item, numbers, word, words
from hilum_preprocessing.header.lookup_table import LookupTable
from hilum_preprocessing.header.luts import (
    ModalityLut,
    Unusable,
    Voi,
    modality_of,
    pixel_aspect_of,
    voi_of,
)
from hilum_preprocessing.header.pixel_header import PixelHeader
from hilum_preprocessing.header.views import view_of
from hilum_preprocessing.orientation import Turn, turn_of
from hilum_preprocessing.spec.placement import Placement, place
from hilum_preprocessing.spec.sizing import geometry_of

_LONGEST_TYPE: Final = 16  # characters: the defined terms have three at most
_LARGEST_IS: Final = 2**31 - 1  # PS3.5 6.2
_LARGEST_TERM: Final = 1000  # of an aspect ratio in whole numbers
# The attributes of a shape and how many values each has; 0: points of a polygon (PS3.3 C.7.6.11).
_SHUTTERS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "RECTANGULAR": (
        ("ShutterLeftVerticalEdge", 1),
        ("ShutterRightVerticalEdge", 1),
        ("ShutterUpperHorizontalEdge", 1),
        ("ShutterLowerHorizontalEdge", 1),
    ),
    "CIRCULAR": (("CenterOfCircularShutter", 2), ("RadiusOfCircularShutter", 1)),
    "POLYGONAL": (("VerticesOfThePolygonalShutter", 0),),
}


@dataclass(frozen=True, slots=True)
class SourceDisplay:
    """One source image. `spacing`: Pixel Spacing of its header; else `aspect` alone is known.

    `aspect`: height and width of a pixel in whole numbers. `shutter`: the values of the Display
    Shutter module by keyword. `turn`: from the stored picture to the one that the model saw.
    `placement`: of the model's tensor in that one; None: it is not known.
    """

    sop_class_uid: str
    sop_instance_uid: str
    series_instance_uid: str
    rows: int
    columns: int
    is_monochrome1: bool
    modality: ModalityLut
    rescale_type: str
    voi: Voi
    spacing: tuple[float, float] | None
    aspect: tuple[int, int]
    shutter: Mapping[str, Any]
    turn: Turn | None
    placement: Placement | None

    def shares_with(self, other: SourceDisplay) -> bool:
        """Whether one presentation state can show both: these modules apply to all its images."""
        return self.is_monochrome1 == other.is_monochrome1 and _same_modality(self, other)

    def stored(self, line: Points) -> Points:
        """A line in the picture that the model saw, in the one that is stored."""
        turn = self.turn
        if turn is None:
            return line
        height, width = (
            (self.columns, self.rows) if turn.is_transposed else (self.rows, self.columns)
        )
        moved = line.copy()
        if turn.reverses_columns:
            moved[:, 0] = width - moved[:, 0]
        if turn.reverses_rows:
            moved[:, 1] = height - moved[:, 1]
        return moved[:, ::-1].copy() if turn.is_transposed else moved


def source_display(instance: Instance, spec: InputSpec) -> SourceDisplay | None:
    """Return the display of an image by its header; None: no presentation state can show it.

    That is a picture in colour, one of several frames, or a header that cannot be read.
    """
    try:
        header = raw_header(instance)
        pixels = PixelHeader.of(header)
        if not pixels.is_monochrome or pixels.frames > 1:
            return None
        modality = modality_of(header)
        return SourceDisplay(
            instance.sop_class_uid,
            instance.sop_instance_uid,
            instance.series_instance_uid,
            pixels.rows,
            pixels.columns,
            pixels.is_monochrome1,
            None if isinstance(modality, Unusable) else modality,
            _rescale_type(header),
            voi_of(header),
            _spacing(header),
            _aspect(header),
            _shutter(header),
            *_tensor(header, spec, (pixels.rows, pixels.columns)),
        )
    except (NotAnalysed, NotAnalysable):
        return None


def _same_modality(one: SourceDisplay, other: SourceDisplay) -> bool:
    first = one.modality
    second = other.modality
    if isinstance(first, LookupTable) and isinstance(second, LookupTable):
        alike = (first.first, first.bits) == (second.first, second.bits)
        is_same = alike and np.array_equal(first.entries, second.entries)
    elif isinstance(first, LookupTable) or isinstance(second, LookupTable):
        return False
    else:
        is_same = first == second
    return is_same and (first is None or one.rescale_type == other.rescale_type)


def _rescale_type(header: Dataset) -> str:
    """Return Rescale Type, or Modality LUT Type; US (unspecified) where there is none."""
    try:
        item = first_item(header, "ModalityLUTSequence")
        found = word(header, "RescaleType") if item is None else word(item, "ModalityLUTType")
    except NotAnalysable:
        found = ""
    return fitted(found, _LONGEST_TYPE) or "US"


def _spacing(header: Dataset) -> tuple[float, float] | None:
    try:
        found = numbers(header, "PixelSpacing")
    except NotAnalysable:
        return None
    if len(found) != 2 or not all(math.isfinite(side) and side > 0 for side in found):
        return None
    return found[0], found[1]


def _aspect(header: Dataset) -> tuple[int, int]:
    ratio = pixel_aspect_of(header)
    if ratio is None or not 1 / _LARGEST_TERM <= ratio <= _LARGEST_TERM:
        return 1, 1
    found = Fraction(ratio).limit_denominator(_LARGEST_TERM)
    return found.numerator, found.denominator


def _shutter(header: Dataset) -> Mapping[str, Any]:
    """Return the Display Shutter module (PS3.3 C.7.6.11), empty where it is not whole."""
    try:
        return _whole_shutter(header)
    except NotAnalysable:
        return {}


def _whole_shutter(header: Dataset) -> Mapping[str, Any]:
    shapes = words(header, "ShutterShape")
    if not shapes or not set(shapes) <= _SHUTTERS.keys():
        return {}
    found: dict[str, Any] = {"ShutterShape": list(shapes)}
    for keyword, count in (pair for shape in shapes for pair in _SHUTTERS[shape]):
        values = [round(value) for value in numbers(header, keyword)]
        is_whole = len(values) == count if count else len(values) >= 6 and len(values) % 2 == 0
        if not is_whole or max(map(abs, values)) > _LARGEST_IS:
            return {}
        found[keyword] = values if len(values) > 1 else values[0]
    shade = numbers(header, "ShutterPresentationValue")
    if len(shade) == 1 and 0 <= shade[0] <= 0xFFFF:
        found["ShutterPresentationValue"] = round(shade[0])
    return found


def _tensor(
    header: Dataset, spec: InputSpec, size: tuple[int, int]
) -> tuple[Turn | None, Placement | None]:
    turn = turn_of(header, view_of(header)) if spec.source.orientation == "patient" else None
    aspect = pixel_aspect_of(header)
    if turn is not None and turn.is_transposed:
        size = (size[1], size[0])
        aspect = None if aspect is None else 1 / aspect
    try:
        return turn, place(geometry_of(spec, size, aspect), size)
    except NotAnalysable:
        return turn, None
