"""Stored values in the form that the compiled code takes, and their levels.

Shared by both ways to prepare a picture. Torch-free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.levels.extent import counts
from hilum_preprocessing.levels.lines import Line
from hilum_preprocessing.levels.tables import LevelTable
from hilum_preprocessing.resize.compiled import SampleBuffer


def line_for(table: LevelTable, ends: tuple[int, int], *, is_uint8: bool) -> Line | None:
    """Return the line of the levels of the stored values between these ends.

    None: the levels are on no line and must be looked up.
    """
    # Whole grey levels of a part may lie on a line where those of the table do not; they are looked
    # up all the same, and are the same.
    return (
        None if is_uint8 and table.slope is None and table.lookups is not None else table.line(ends)
    )


def samples_of(
    array: NDArray[Any], table: LevelTable, line: Line | None, *, is_uint8: bool
) -> SampleBuffer:
    """Return the samples of stored values (rows, columns), clamped or with their lookup table.

    Clamped where the levels are on a line; the line is then applied after the resize.
    """
    if line is not None and not is_uint8:
        return SampleBuffer(array, line.low, line.high)
    levels = table.lookup(array.dtype, np.uint8) if is_uint8 else None
    return SampleBuffer(array, lookup=table.lookup(array.dtype, np.float32), levels=levels)


def level_extremes(
    array: NDArray[Any], table: LevelTable, ends: tuple[int, int]
) -> tuple[float, float]:
    """Smallest and largest level of the stored values between these.

    Where the table rises and falls, of those that are there.
    """
    used = table.values[table.entries(ends)]
    if table.slope is not None:
        low, high = sorted((float(used[0]), float(used[-1])))
        return low, high
    if not _is_monotonic(used):
        used = table.values[counts(array, table.first, len(table.values)) > 0]
    return float(used.min()), float(used.max())


def _is_monotonic(levels: NDArray[np.float64]) -> bool:
    steps = np.diff(levels)
    return bool((steps >= 0).all() or (steps <= 0).all())
