"""Stored values to levels, block by block: a line where the table is one, the table itself elsewhere.

A line with its clamps costs a conversion and at most two passes; looking up costs three times that. Which of the two it is, is read
from the table, so it cannot differ from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hilum_preprocessing.bands import Arithmetic
from hilum_preprocessing.compiled import Samples, extremes
from hilum_preprocessing.extent import counts
from hilum_preprocessing.resample import Pixels
from hilum_preprocessing.scratch import scratch
from hilum_preprocessing.tables import LevelTable

_TOLERANCE = 1e-12
"""Of the largest level: what rounding in float64 leaves."""

_UNSIGNED = {torch.int8: torch.uint8, torch.uint8: torch.uint8, torch.int16: torch.uint16, torch.uint16: torch.uint16}


@dataclass(frozen=True, slots=True)
class Line:
    """level = slope * x + offset, x being the stored value, not below `low` and not above `high`; None: no stored value is."""

    slope: float
    offset: float
    low: float | None = None
    high: float | None = None


def line_of(levels: NDArray[np.float64], first: int) -> Line | None:
    """The line on which the levels of the stored values `first`, `first + 1` … lie, flat ends being clamps. None: there is none."""
    steps = np.flatnonzero(np.diff(levels))
    if len(steps) == 0:
        return Line(0.0, float(levels[0]))
    last = len(levels) - 1
    is_low, is_high = steps[0] > 0, steps[-1] < last - 1
    begin, end = int(steps[0]) + is_low, int(steps[-1]) + 1 - is_high
    if begin >= end:
        return None
    slope = float(levels[end] - levels[begin]) / (end - begin)
    if slope == 0.0:
        return None
    offset = float(levels[begin]) - slope * (first + begin)
    ends = sorted((float(level) - offset) / slope for level in (levels[0], levels[-1]))
    found = Line(slope, offset, ends[0] if is_low else None, ends[1] if is_high else None)
    return found if _is_on(found, levels, first) else None


def _is_on(line: Line, levels: NDArray[np.float64], first: int) -> bool:
    stored = np.arange(first, first + len(levels), dtype=np.float64)
    if line.low is not None or line.high is not None:
        np.clip(stored, line.low, line.high, out=stored)
    return bool(np.abs(line.slope * stored + line.offset - levels).max() <= _TOLERANCE * np.abs(levels).max())


def words_of(array: NDArray[Any], device: torch.device) -> Tensor:
    """(rows, columns) stored values on the device, not copied on a CPU, and never to be written to.

    Files are mapped read-only, and torch warns about such memory: this shows it the same memory without the mark.
    """
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Unmarked(array))).to(device)


class _Unmarked:
    """Memory of an array, which it keeps alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def pixels_of_stored(
    array: NDArray[Any],
    words: Tensor,
    table: LevelTable,
    ends: tuple[int, int],
    arithmetic: Arithmetic = "float",
    *,
    is_uint8: bool = False,
) -> Pixels:
    """Stored values `array` (rows, columns), which are `words` on their device, through the table of their picture.

    `ends`: no stored value of `array` lies outside. `fill` gives levels; in float32 it may give what `line` makes into levels: a
    resize leaves far fewer pixels to do it to.
    """
    used = table.values[ends[0] - table.first : ends[1] - table.first + 1]
    line = line_of(used, ends[0])
    limits = partial(_level_extremes, array, table)
    make = partial(Pixels, (words.shape[0], words.shape[1]), words.device, extremes=limits, is_uint8=is_uint8)
    is_here = words.device.type == "cpu"
    levels = table.lookup(array.dtype, np.uint8) if is_here and is_uint8 else None
    if line is None:
        lookup = table.lookup(array.dtype, np.float32)
        samples = Samples(array, lookup=lookup, levels=levels) if is_here else None
        return make(fill=partial(_look_up, words, torch.from_numpy(lookup).to(words.device)), samples=samples)
    if arithmetic == "float" and not is_uint8:
        samples = Samples(array, line.low, line.high) if is_here else None
        return make(fill=partial(_clamped, words, line), line=(line.slope, line.offset), samples=samples)
    samples = Samples(array, lookup=table.lookup(array.dtype, np.float32), levels=levels) if is_here and is_uint8 else None
    return make(fill=partial(_on_line, words, line), samples=samples)


def stored_extremes(array: NDArray[Any]) -> tuple[int, int]:
    """Smallest and largest stored value. torch does it in one pass, but not for uint16, and slowly where lines have gaps between them."""
    if ends := extremes(array):
        return ends
    if array.flags.c_contiguous:
        words = words_of(array.view(np.int16) if array.dtype == np.uint16 else array, torch.device("cpu"))
        smallest, largest = (int(end) for end in torch.aminmax(words))
        if smallest >= 0 or array.dtype != np.uint16:  # else the upper half of the values is negative as int16
            return smallest, largest
    return int(array.min()), int(array.max())


def _level_extremes(array: NDArray[Any], table: LevelTable, ends: tuple[int, int] | None) -> tuple[float, float]:
    """Smallest and largest level of the stored values; where the table rises and falls, of those that are there."""
    smallest, largest = ends or stored_extremes(array)
    used = table.values[smallest - table.first : largest - table.first + 1]
    steps = np.diff(used)
    if not ((steps >= 0).all() or (steps <= 0).all()):
        used = table.values[counts(array, table.first, len(table.values)) > 0]
    return float(used.min()), float(used.max())


def _clamped(words: Tensor, line: Line, out: Tensor, rows: slice) -> None:
    out.copy_(words[rows])
    if line.low is not None or line.high is not None:
        out.clamp_(line.low, line.high)


def _on_line(words: Tensor, line: Line, out: Tensor, rows: slice) -> None:
    """In float32, then to the type of `out`: raw counts of 16 bits are infinite in half precision, levels are not."""
    exact = out if out.dtype == torch.float32 else scratch("exact", _size(out), torch.float32, out.device)
    _clamped(words, line, exact, rows)
    exact.mul_(line.slope).add_(line.offset)
    if exact is not out:
        out.copy_(exact)


def _look_up(words: Tensor, lookup: Tensor, out: Tensor, rows: slice) -> None:
    """Signed values index by their two's complement, and no index lies outside, whatever the pixels hold."""
    index = scratch("index", _size(out), torch.int32, out.device)
    index.copy_(words[rows].view(_UNSIGNED[words.dtype]))
    found = scratch("found", _size(out), lookup.dtype, out.device)
    torch.index_select(lookup, 0, index.view(-1), out=found.view(-1))
    out.copy_(found)


def _size(block: Tensor) -> tuple[int, int]:
    return block.shape[0], block.shape[1]
