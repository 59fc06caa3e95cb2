"""From stored values to the values that a model was trained on, as one table.

Stored value in, level out. Torch-free.

Order of PS3.3 C.11: modality LUT, VOI LUT, polarity, then the recipe's own operations. All of them
map each pixel by itself, so they collapse to one table of at most 65536 entries, computed in
float64 and applied once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.lookup_table import LookupTable
from hilum_preprocessing.header.luts import Rescale, Unusable
from hilum_preprocessing.levels.extent import counts, covers, extent
from hilum_preprocessing.levels.intensity import apply_intensity
from hilum_preprocessing.levels.lines import slope_of
from hilum_preprocessing.levels.picture_entry import entered
from hilum_preprocessing.levels.polarity import invert_after_uint8, is_inverted, with_polarity
from hilum_preprocessing.levels.tables import Levels, LevelTable, Values
from hilum_preprocessing.levels.voi import apply_voi, look_up, windowed
from hilum_preprocessing.resize.bounded import BoundedCache
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.operations import EqualizeHist, Percentile, ToUint8
from hilum_preprocessing.spec.reduction import takes_statistics

__all__ = ["LevelTable", "finished", "level_table", "windowed", "without_unusable"]

_CACHE_BYTES: Final = 16 << 20  # a dozen tables; a device sends the same kind of object all day
_LOOKUP_BYTES: Final = (
    2 * 65536 * (4 + 1)
)  # a table's lookups in floats and in grey levels, by two types of stored values
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def level_table(
    stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None = None
) -> LevelTable:
    """Return the table for one picture: all intensity steps.

    With order resize_first it holds those of `source` alone (see `finished`). `ends`: smallest and
    largest stored value, padding included, where the caller knows them. Raises NotAnalysable: a
    constant picture; MONOCHROME1, a missing VOI or values that the specification refuses.
    """
    spec = entered(stored, spec)
    key = _key_of(stored, spec)
    if key is not None:
        return _known(key, stored, spec, ends)
    levels = _levels(
        _nominal(stored, _observed(stored, spec, ends), _counts(stored, spec)), stored, spec
    )
    _require_contrast(levels.picture)
    return LevelTable(_first(stored), levels.values, levels.observed)


def without_unusable(stored: StoredValues) -> StoredValues:
    """Return the same without a modality LUT that cannot be used, for display."""
    return replace(stored, modality=None) if isinstance(stored.modality, Unusable) else stored


def _key_of(stored: StoredValues, spec: InputSpec) -> Hashable | None:
    """All that the levels depend on, where it is little.

    No statistics, no table and no window of the object.
    """
    modality = stored.modality if spec.source.modality_lut == "apply" else None
    if (
        isinstance(modality, LookupTable)
        or spec.source.voi not in ("none", "fixed")
        or takes_statistics(spec)
    ):
        return None
    return (
        spec,
        stored.bits_stored,
        stored.is_signed,
        stored.is_monochrome1,
        stored.presentation_lut_shape,
        modality,
    )


def _known(
    key: Hashable, stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None
) -> LevelTable:
    """Return the table of this key, with the entries that this picture uses."""
    observed = _observed(stored, spec, ends)
    kept = _TABLES.get(key, lambda: _table_by_header(stored, spec))
    used = kept.values[observed]
    # Levels with a slope never turn back, so that equal ones at both ends are equal between them.
    if kept.slope is None or used[0] == used[-1]:
        _require_contrast(used)
    return LevelTable(kept.first, kept.values, observed, kept.slope, kept.lookups)


def _table_by_header(stored: StoredValues, spec: InputSpec) -> LevelTable:
    levels = _levels(_nominal(stored, slice(None)), stored, spec)
    levels.values.setflags(write=False)
    return LevelTable(
        _first(stored), levels.values, levels.observed, slope_of(levels.values, _first(stored)), {}
    )


_TABLES: BoundedCache[Hashable, LevelTable] = BoundedCache(
    _CACHE_BYTES, lambda table: table.values.nbytes + _LOOKUP_BYTES
)
"""Of all threads."""


def finished(resized: NDArray[Any], stored: StoredValues, spec: InputSpec) -> Values:
    """Apply the intensity operations to the resized picture (H, W), with order resize_first.

    Their statistics are those of the resized picture.
    """
    spec = entered(stored, spec)
    nominal = _source_levels(_nominal(stored, _observed(stored, spec, None)), stored, spec)
    values = resized.astype(np.float64).ravel()
    levels = replace(
        nominal, values=values, observed=slice(None), counts=np.ones(values.size, np.int64)
    )
    levels = _intensity(levels, stored, spec)
    _require_contrast(levels.picture)
    return levels.values.reshape(resized.shape)


def _levels(nominal: Levels, stored: StoredValues, spec: InputSpec) -> Levels:
    levels = _source_levels(nominal, stored, spec)
    return _intensity(levels, stored, spec) if spec.order == "intensity_first" else levels


def _source_levels(levels: Levels, stored: StoredValues, spec: InputSpec) -> Levels:
    source = spec.source
    if source.modality_lut == "apply":
        levels = _modality(levels, stored)
    levels = apply_voi(levels, stored.voi, source, stored.bits_stored)
    levels = replace(
        levels, two_to_bits=256.0 if levels.picture.max() < 256 else float(1 << stored.bits_stored)
    )
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


def _nominal(
    stored: StoredValues, observed: slice, counted: NDArray[np.int64] | None = None
) -> Levels:
    """The stored values themselves, of which the picture uses these, so often."""
    first = _first(stored)
    count = 1 << stored.bits_stored
    return Levels(
        np.arange(first, first + count, dtype=np.float64),
        float(first),
        float(first + count - 1),
        observed,
        counted,
    )


def _observed(stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None) -> slice:
    """Entries of the table between the picture's smallest and largest stored value.

    Raises NotAnalysable (constant_image).
    """
    smallest, largest = _extent(stored, spec, ends)
    if smallest == largest:
        raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels have one stored value")
    return slice(smallest - _first(stored), largest - _first(stored) + 1)


def _extent(stored: StoredValues, spec: InputSpec, ends: tuple[int, int] | None) -> tuple[int, int]:
    """Return the smallest and largest stored value of the picture.

    Padding is left out unless the recipe keeps it (PS3.3 C.7.5.1.1.2).
    """
    padding = None if spec.source.padding == "keep" else stored.padding
    if padding is not None and not takes_statistics(spec):
        ends = ends or (int(stored.array.min()), int(stored.array.max()))
        # A padding that covers the whole picture makes no sense; only statistics would need it.
        padding = None if covers(padding, ends) else padding
    return extent(stored.array, padding, ends)


def _counts(stored: StoredValues, spec: InputSpec) -> NDArray[np.int64] | None:
    """Pixels of each possible stored value, without padding; None when no operation asks."""
    if spec.order == "resize_first" or not any(
        isinstance(op, Percentile | EqualizeHist) for op in spec.intensity
    ):
        return None
    found = counts(stored.array, _first(stored), 1 << stored.bits_stored)
    if spec.source.padding != "keep":
        found[_padding_entries(stored)] = 0
    return found


def _padding_entries(stored: StoredValues) -> slice:
    """Entries of the table that are no part of the picture."""
    if stored.padding is None:
        return slice(0, 0)
    low = stored.padding[0] - _first(stored)
    beyond = stored.padding[1] - _first(stored) + 1
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
        case Unusable(detail):
            raise NotAnalysable(Reason.CORRUPT_HEADER, detail)
        case None:
            return levels


def _require_representable(slope: float, intercept: float, levels: Levels) -> None:
    """Raises NotAnalysable for numbers of the header that give infinite levels.

    The range of infinite levels would be NaN, and the picture black.
    """
    if abs(slope) * max(abs(levels.low), abs(levels.high)) + abs(intercept) > _LARGEST_FLOAT32:
        raise NotAnalysable(
            Reason.CORRUPT_HEADER,
            "Rescale Slope and Intercept give values that float32 cannot hold",
        )


def _require_contrast(used: Values) -> None:
    if used.min() == used.max():
        raise NotAnalysable(
            Reason.CONSTANT_IMAGE, "all pixels have one level after the intensity operations"
        )
