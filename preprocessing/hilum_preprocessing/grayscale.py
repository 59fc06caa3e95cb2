"""From stored values to the values that a model was trained on, as one table: stored value in, level out. Torch-free.

Order of PS3.3 C.11: modality LUT, VOI LUT, polarity, then the recipe's own operations. All of them map each pixel by itself, so they
collapse to one table of at most 65536 entries, computed in float64 and applied once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.extent import counts, extent
from hilum_preprocessing.intensity import apply_intensity
from hilum_preprocessing.luts import LookupTable, Rescale
from hilum_preprocessing.operations import EqualizeHist, Percentile, ToUint8
from hilum_preprocessing.polarity import invert_after_uint8, is_inverted, with_polarity
from hilum_preprocessing.spec import InputSpec
from hilum_preprocessing.tables import Levels, LevelTable, Values
from hilum_preprocessing.voi import apply_voi, look_up, windowed

__all__ = ["LevelTable", "finished", "level_table", "windowed"]

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def level_table(stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None = None) -> LevelTable:
    """The table for one picture: all intensity steps, or with order resize_first those of `source` alone (see `finished`).

    `ends`: smallest and largest stored value, padding included, where the caller knows them. Raises NotAnalysable: a constant
    picture; MONOCHROME1, a missing VOI or values that the specification refuses.
    """
    levels = _source_levels(stored, spec, ends)
    if spec.order == "intensity_first":
        levels = _intensity(levels, stored, spec)
    _require_contrast(levels)
    return LevelTable(_first(stored), levels.values, levels.observed)


def finished(resized: NDArray[Any], stored: StoredValues, spec: InputSpec) -> Values:
    """With order resize_first: the intensity operations on the picture (H, W) that the geometry made; its statistics are its own."""
    nominal = _source_levels(stored, spec)
    values = resized.astype(np.float64).ravel()
    levels = replace(nominal, values=values, observed=slice(None), counts=np.ones(values.size, np.int64))
    levels = _intensity(levels, stored, spec)
    _require_contrast(levels)
    return levels.values.reshape(resized.shape)


def _source_levels(stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None = None) -> Levels:
    source = spec.source
    levels = _nominal(stored, spec, ends)
    if source.modality_lut == "apply":
        levels = _modality(levels, stored)
    levels = apply_voi(levels, stored.voi, source, stored.bits_stored)
    levels = replace(levels, two_to_bits=256.0 if levels.picture.max() < 256 else float(1 << stored.bits_stored))
    levels = with_polarity(levels, stored, source)
    return _darkened(levels, stored) if source.padding == "replace_min" else levels


def _intensity(levels: Levels, stored: StoredValues, spec: InputSpec) -> Levels:
    is_late = spec.source.monochrome1 == "invert_after_uint8" and is_inverted(stored, spec.source)
    for op in spec.intensity:
        levels = apply_intensity(levels, op)
        if is_late and isinstance(op, ToUint8):
            levels = invert_after_uint8(levels)
    return levels


def _first(stored: StoredValues) -> int:
    return -(1 << (stored.bits_stored - 1)) if stored.is_signed else 0


def _nominal(stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None) -> Levels:
    first, count = _first(stored), 1 << stored.bits_stored
    smallest, largest = _extent(stored, spec, ends)
    if smallest == largest:
        raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels have one stored value")
    values = np.arange(first, first + count, dtype=np.float64)
    observed = slice(smallest - first, largest - first + 1)
    return Levels(values, float(first), float(first + count - 1), observed, _counts(stored, spec))


def _extent(stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None) -> tuple[int, int]:
    """Smallest and largest stored value of the picture, without padding unless the recipe keeps it in (PS3.3 C.7.5.1.1.2)."""
    return extent(stored.array, None if spec.source.padding == "keep" else stored.padding, ends)


def _counts(stored: StoredValues, spec: InputSpec) -> NDArray[np.int64] | None:
    """Pixels of each possible stored value, without padding; None when no operation asks."""
    if spec.order == "resize_first" or not any(isinstance(op, Percentile | EqualizeHist) for op in spec.intensity):
        return None
    found = counts(stored.array, _first(stored), 1 << stored.bits_stored)
    if spec.source.padding != "keep":
        found[_padding_entries(stored)] = 0
    return found


def _padding_entries(stored: StoredValues) -> slice:
    """Entries of the table that are no part of the picture."""
    if stored.padding is None:
        return slice(0, 0)
    low, beyond = stored.padding[0] - _first(stored), stored.padding[1] - _first(stored) + 1
    return slice(max(0, low), max(0, beyond))


def _darkened(levels: Levels, stored: StoredValues) -> Levels:
    values = levels.values.copy()
    values[_padding_entries(stored)] = levels.picture.min()
    return replace(levels, values=values)


def _modality(levels: Levels, stored: StoredValues) -> Levels:
    match stored.modality:
        case Rescale(slope, intercept):
            _require_representable(slope, intercept, levels)
            return levels.map(lambda value: slope * value + intercept)
        case LookupTable() as table:
            return look_up(levels, table)
        case None:
            return levels


def _require_representable(slope: float, intercept: float, levels: Levels) -> None:
    """Numbers of the header that make infinite levels would make NaN of their range, and a black picture of that."""
    if abs(slope) * max(abs(levels.low), abs(levels.high)) + abs(intercept) > _LARGEST_FLOAT32:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "Rescale Slope and Intercept give values that float32 cannot hold")


def _require_contrast(levels: Levels) -> None:
    picture = levels.picture
    if picture.min() == picture.max():
        raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels have one level after the intensity operations")
