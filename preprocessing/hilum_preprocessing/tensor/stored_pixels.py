"""Stored values to levels, block by block.

A line where the table is one, the table itself elsewhere.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hilum_preprocessing.levels.lines import Line
from hilum_preprocessing.levels.tables import LevelTable
from hilum_preprocessing.resize.bands import Arithmetic
from hilum_preprocessing.resize.compiled import extremes
from hilum_preprocessing.resize.resample import Pixels
from hilum_preprocessing.resize.scratch import scratch
from hilum_preprocessing.tensor.stored_samples import level_extremes, line_for, samples_of

_UNSIGNED = {
    torch.int8: torch.uint8,
    torch.uint8: torch.uint8,
    torch.int16: torch.uint16,
    torch.uint16: torch.uint16,
}


def words_of(array: NDArray[Any], device: torch.device) -> Tensor:
    """(rows, columns) stored values on the device, not copied on a CPU, and never to be written to.

    Files are mapped read-only, and torch warns about such memory: this shows it the same memory
    without the mark.
    """
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Unmarked(array))).to(
        device
    )


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
    """Return stored values `array` (rows, columns) as pixels, through the table of their picture.

    `words`: the same values on their device. `ends`: no stored value of `array` is outside of
    these. `fill` gives levels. In float32 it may leave out `line`, which is cheaper to apply after
    the resize, when fewer pixels are left.
    """
    line = line_for(table, ends, is_uint8=is_uint8)
    limits = partial(_level_extremes, array, table)
    make = partial(
        Pixels, (words.shape[0], words.shape[1]), words.device, extremes=limits, is_uint8=is_uint8
    )
    samples = (
        samples_of(array, table, line, is_uint8=is_uint8) if words.device.type == "cpu" else None
    )
    if line is None:
        lookup = _sent(torch.from_numpy(table.lookup(array.dtype, np.float32)), words.device)
        return make(fill=partial(_look_up, words, lookup), samples=samples)
    if arithmetic == "float" and not is_uint8:
        return make(
            fill=partial(_clamped, words, line), line=(line.slope, line.offset), samples=samples
        )
    return make(fill=partial(_on_line, words, line), samples=samples)


def _sent(table: Tensor, device: torch.device) -> Tensor:
    """Return the table on its device. From page-locked memory the host does not wait for a GPU."""
    if device.type == "cpu":
        return table
    return table.pin_memory().to(device, non_blocking=True)


def stored_extremes(array: NDArray[Any]) -> tuple[int, int]:
    """Return the smallest and largest stored value.

    torch does it in one pass, but not for uint16, and slowly where rows are not adjacent in memory.
    """
    if ends := extremes(array):
        return ends
    if array.flags.c_contiguous:
        words = words_of(
            array.view(np.int16) if array.dtype == np.uint16 else array, torch.device("cpu")
        )
        smallest, largest = (int(end) for end in torch.aminmax(words))
        if (
            smallest >= 0 or array.dtype != np.uint16
        ):  # else the upper half of the values is negative as int16
            return smallest, largest
    return int(array.min()), int(array.max())


def _level_extremes(
    array: NDArray[Any], table: LevelTable, ends: tuple[int, int] | None
) -> tuple[float, float]:
    return level_extremes(array, table, ends or stored_extremes(array))


def _clamped(words: Tensor, line: Line, out: Tensor, rows: slice) -> None:
    out.copy_(words[rows])
    if line.low is not None or line.high is not None:
        out.clamp_(line.low, line.high)


def _on_line(words: Tensor, line: Line, out: Tensor, rows: slice) -> None:
    """In float32, then to the type of `out`.

    Raw counts of 16 bits are infinite in half precision, levels are not.
    """
    exact = (
        out
        if out.dtype == torch.float32
        else scratch("exact", _size(out), torch.float32, out.device)
    )
    _clamped(words, line, exact, rows)
    exact.mul_(line.slope).add_(line.offset)
    if exact is not out:
        out.copy_(exact)


def _look_up(words: Tensor, lookup: Tensor, out: Tensor, rows: slice) -> None:
    """Look up each stored value: signed ones index by their two's complement.

    No index is out of range for any pixel value.
    """
    index = scratch("index", _size(out), torch.int32, out.device)
    index.copy_(words[rows].view(_UNSIGNED[words.dtype]))
    found = scratch("found", _size(out), lookup.dtype, out.device)
    torch.index_select(lookup, 0, index.view(-1), out=found.view(-1))
    out.copy_(found)


def _size(block: Tensor) -> tuple[int, int]:
    return block.shape[0], block.shape[1]
