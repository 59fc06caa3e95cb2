"""Levels on a straight line, with flat ends as clamps. Torch-free.

A line with its clamps costs a conversion and at most two passes; looking up costs three times that.
The line is read from the table, so both give the same levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TOLERANCE = 1e-12
"""Of the largest level: what rounding in float64 leaves."""


@dataclass(frozen=True, slots=True)
class Line:
    """level = slope * x + offset, x being the stored value, not below `low` and not above `high`.

    None: no stored value is.
    """

    slope: float
    offset: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Slope:
    """The part of the table where levels change, for levels on a line.

    Each entry from `first` to `last` differs from the one after it. All entries before are equal,
    and all after `last`.
    """

    first: int
    last: int


def line_of(levels: Floats, first: int) -> Line | None:
    """Return the line of the levels of the stored values `first`, `first + 1` …, or None.

    Flat ends are clamps.
    """
    steps = np.flatnonzero(np.diff(levels))
    if len(steps) == 0:
        return Line(0.0, float(levels[0]))
    found = _line_through(levels, first, int(steps[0]), int(steps[-1]))
    return found if found is not None and _is_on(found, levels, first) else None


def slope_of(levels: Floats, first: int) -> Slope | None:
    """Return where the levels change, if they are on a line and change at every step there."""
    steps = np.flatnonzero(np.diff(levels))
    if len(steps) == 0 or steps[-1] - steps[0] + 1 != len(steps) or line_of(levels, first) is None:
        return None
    return Slope(int(steps[0]), int(steps[-1]))


def line_within(levels: Floats, first: int, slope: Slope, part: slice) -> Line | None:
    """Return the same as `line_of` for a part of the levels whose slope is known.

    Does not read each of them.
    """
    used = levels[part]
    begin = max(slope.first - part.start, 0)
    end = min(slope.last - part.start, len(used) - 2)
    return (
        Line(0.0, float(used[0]))
        if begin > end
        else _line_through(used, first + part.start, begin, end)
    )


def _line_through(levels: Floats, first: int, first_step: int, last_step: int) -> Line | None:
    """Return the line through levels whose first and last changes are at these entries.

    None: too few entries are between the clamps.
    """
    last = len(levels) - 1
    is_low = first_step > 0
    is_high = last_step < last - 1
    begin = first_step + is_low
    end = last_step + 1 - is_high
    if begin >= end:
        return None
    slope = float(levels[end] - levels[begin]) / (end - begin)
    if slope == 0.0:
        return None
    offset = float(levels[begin]) - slope * (first + begin)
    ends = sorted((float(level) - offset) / slope for level in (levels[0], levels[-1]))
    return Line(slope, offset, ends[0] if is_low else None, ends[1] if is_high else None)


def _is_on(line: Line, levels: Floats, first: int) -> bool:
    stored = np.arange(first, first + len(levels), dtype=np.float64)
    if line.low is not None or line.high is not None:
        np.clip(stored, line.low, line.high, out=stored)
    return bool(
        np.abs(line.slope * stored + line.offset - levels).max()
        <= _TOLERANCE * np.abs(levels).max()
    )
