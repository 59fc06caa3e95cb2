"""From stored values to the values that a model was trained on, as one table: stored value in, level out. Torch-free.

Order of PS3.3 C.11: modality LUT, VOI LUT, inversion of MONOCHROME1, then the recipe's own operations. All of them map each
pixel by itself, so they collapse to one table of at most 65536 entries, computed in float64 and applied once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.luts import LookupTable, Rescale, Window
from hilum_preprocessing.operations import Clamp, IntensityOp, Invert, Maxval, MinMax, Scale, ToUint8
from hilum_preprocessing.spec import InputSpec, Source


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each possible stored value, the nominal range of levels, and which entries the picture uses.

    `observed` spans the stored values between the picture's smallest and largest one, padding excluded.
    """

    values: NDArray[np.float64]
    low: float
    high: float
    observed: slice

    def map(self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Levels:
        """All levels, and the ends of the range, through a monotonic function."""
        ends = function(np.array([self.low, self.high]))
        return replace(self, values=function(self.values), low=float(ends.min()), high=float(ends.max()))

    def with_range(self, values: NDArray[np.float64], low: float, high: float) -> Levels:
        """Other levels in another nominal range."""
        return replace(self, values=values, low=low, high=high)

    @property
    def picture(self) -> NDArray[np.float64]:
        """The levels that the picture uses."""
        return self.values[self.observed]


@dataclass(frozen=True, slots=True)
class LevelTable:
    """`values[i]` is the level of the stored value `first + i`; `observed` as in `Levels`."""

    first: int
    values: NDArray[np.float64]
    observed: slice

    def affine(self, smallest: int, largest: int) -> tuple[float, float] | None:
        """(slope, offset) when the levels of smallest..largest lie on one line to within a float64's rounding, else None."""
        used = self.values[smallest - self.first : largest - self.first + 1]
        if len(used) < 2:
            return None
        slope = (used[-1] - used[0]) / (len(used) - 1)
        line = used[0] + slope * np.arange(len(used))
        tolerance = 1e-12 * max(abs(used[0]), abs(used[-1]))
        return (float(slope), float(used[0] - slope * smallest)) if np.abs(used - line).max() <= tolerance else None

    def lookup(self, container: np.dtype[Any], dtype: type[np.float32 | np.uint8]) -> NDArray[Any]:
        """The level of every word of the container (256 or 65536 entries), seen as an unsigned number.

        Signed stored values index by their two's complement, and no index lies outside, whatever the pixels hold.
        """
        unsigned = f"u{container.itemsize}"
        lookup = np.zeros(1 << (8 * container.itemsize), dtype)
        lookup[np.arange(self.first, self.first + len(self.values)).astype(container).view(unsigned)] = self.values
        return lookup


def level_table(stored: StoredValues, spec: InputSpec) -> LevelTable:
    """The table for one picture. Raises NotAnalysable: constant picture, MONOCHROME1 or a missing VOI that the recipe refuses."""
    levels = _nominal(stored, spec.source)
    if spec.source.modality_lut == "apply":
        levels = _modality(levels, stored)
    levels = _voi(levels, stored, spec.source)
    levels = _monochrome1(levels, stored, spec.source)
    for op in spec.intensity:
        levels = _INTENSITY[type(op)](levels, op)
        if stored.is_monochrome1 and spec.source.monochrome1 == "invert_after_uint8" and isinstance(op, ToUint8):
            levels = levels.map(lambda level: 255 - level)
    _require_contrast(levels)
    return LevelTable(_first(stored), levels.values, levels.observed)


def _first(stored: StoredValues) -> int:
    return -(1 << (stored.bits_stored - 1)) if stored.is_signed else 0


def _nominal(stored: StoredValues, source: Source) -> Levels:
    first, count = _first(stored), 1 << stored.bits_stored
    smallest, largest = _extent(stored, source)
    if smallest == largest:
        raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels have one stored value")
    values = np.arange(first, first + count, dtype=np.float64)
    return Levels(values, float(first), float(first + count - 1), slice(smallest - first, largest - first + 1))


def _extent(stored: StoredValues, source: Source) -> tuple[int, int]:
    """Smallest and largest stored value of the picture, without padding unless the recipe keeps it in (PS3.3 C.7.5.1.1.2)."""
    array = stored.array
    if stored.padding is not None and source.padding == "exclude_from_stats":
        array = array[(array < stored.padding[0]) | (array > stored.padding[1])]
        if array.size == 0:
            raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels are padding")
    return int(array.min()), int(array.max())


def _modality(levels: Levels, stored: StoredValues) -> Levels:
    match stored.modality:
        case Rescale(slope, intercept):
            return levels.map(lambda value: slope * value + intercept)
        case LookupTable() as table:
            return _lookup(levels, table)
        case None:
            return levels


def _lookup(levels: Levels, table: LookupTable) -> Levels:
    """Input below the first entry takes the first, beyond the last the last. The output's range is the table's own, not Bits Stored's."""
    index = np.clip(np.rint(levels.values) - table.first, 0, len(table.entries) - 1).astype(np.intp)
    return levels.with_range(table.entries[index], 0.0, float((1 << table.bits) - 1))


def _voi(levels: Levels, stored: StoredValues, source: Source) -> Levels:
    if source.voi == "none":
        return levels
    window = stored.voi.window if source.voi == "first_window" else None
    lut = stored.voi.lut
    if lut is not None and (window is None or source.voi_prefer == "lut"):
        return _lookup(levels, lut)
    if window is not None:
        return _window(levels, window, stored.bits_stored)
    if source.missing_voi == "reject":
        raise NotAnalysable(Reason.CORRUPT_HEADER, "no usable window or VOI LUT, and the specification needs one")
    return levels


def _window(levels: Levels, window: Window, bits_stored: int) -> Levels:
    """To 0..2^BitsStored - 1, the range that a display of that depth would take."""
    highest = float((1 << bits_stored) - 1)
    return levels.with_range(windowed(levels.values, window) * highest, 0.0, highest)


def windowed(values: NDArray[np.float64], window: Window) -> NDArray[np.float64]:
    """Values of any shape to [0, 1] by PS3.3 C.11.2.1.2.1 (LINEAR), C.11.2.1.3.1 (SIGMOID) and C.11.2.1.3.2 (LINEAR_EXACT)."""
    centre, width = window.centre, window.width
    if window.function == "SIGMOID":
        sigmoid: NDArray[np.float64] = 0.5 * (1.0 + np.tanh(2.0 * (values - centre) / width))  # 1 / (1 + exp(-4 (x - c) / w)), no overflow
        return sigmoid
    if window.function == "LINEAR":
        centre, width = centre - 0.5, width - 1.0
    if width == 0.0:
        return np.where(values <= centre, 0.0, 1.0)
    return np.clip((values - centre) / width + 0.5, 0.0, 1.0)


def _monochrome1(levels: Levels, stored: StoredValues, source: Source) -> Levels:
    """PS3.3 C.7.6.3.1.2: MONOCHROME1 shows its smallest value as white. Within the nominal range, not within this picture's."""
    if not stored.is_monochrome1 or source.monochrome1 in ("ignore", "invert_after_uint8"):
        return levels
    if source.monochrome1 == "reject":
        raise NotAnalysable(Reason.UNSUPPORTED_PIXEL_FORMAT, "MONOCHROME1, which the specification refuses")
    return _invert(levels, Invert())


def _require_contrast(levels: Levels) -> None:
    picture = levels.picture
    if picture.min() == picture.max():
        raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels have one level after the intensity operations")


def _maxval(levels: Levels, op: Maxval) -> Levels:
    low, span = (levels.low, levels.high - levels.low) if op.of == "bits" else (0.0, op.of)
    return levels.map(lambda value: (value - low) / span)


def _minmax(levels: Levels, _: MinMax) -> Levels:
    low, high = levels.picture.min(), levels.picture.max()
    if low == high:
        raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels have one level before minmax")
    return levels.with_range(np.clip((levels.values - low) / (high - low), 0.0, 1.0), 0.0, 1.0)


def _clamp(levels: Levels, op: Clamp) -> Levels:
    return levels.with_range(np.clip(levels.values, op.low, op.high), op.low, op.high)


def _to_uint8(levels: Levels, op: ToUint8) -> Levels:
    scaled = levels.values * 255.0
    whole = np.trunc(scaled) if op.mode == "truncate" else np.rint(scaled)
    return levels.with_range(np.clip(whole, 0.0, 255.0), 0.0, 255.0)


def _invert(levels: Levels, _: Invert) -> Levels:
    return levels.with_range(levels.low + levels.high - levels.values, levels.low, levels.high)


def _scale(levels: Levels, op: Scale) -> Levels:
    return levels.map(lambda value: value * op.multiply + op.add)


_INTENSITY: dict[type[IntensityOp], Callable[[Levels, Any], Levels]] = {
    Maxval: _maxval,
    MinMax: _minmax,
    Clamp: _clamp,
    ToUint8: _to_uint8,
    Invert: _invert,
    Scale: _scale,
}
