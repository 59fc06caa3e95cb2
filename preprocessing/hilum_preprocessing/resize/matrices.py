"""The matrices of a resize as resize.c reads them.

Which samples each step or each output needs, and their weights. Torch-free.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.resize.axes import Axis, on_grid
from hilum_preprocessing.resize.bounded import BoundedCache
from hilum_preprocessing.resize.kernels import PILLOW_ONE, Taps, as_pillow_integers, in_halves, taps

Floats = NDArray[np.float32]

# As in resize.c: STEP, LANES, and the 16 numbers of 16 bits that AVX2 multiplies at once.
_STEP: Final = 4
_LANES: Final = 8
_SHORTS: Final = 16
_LARGEST: Final = 2 * PILLOW_ONE
# As the matrices in resize/bands.py: shapes come from outside.
_CACHE_BYTES: Final = 32 << 20


class _Down(ctypes.Structure):
    _fields_ = (
        ("steps", ctypes.c_int32),
        ("slots", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("first", ctypes.c_void_p),
        ("count", ctypes.c_void_p),
        ("done", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
    )


class _Across(ctypes.Structure):
    _fields_ = (
        ("outputs", ctypes.c_int32),
        ("taps", ctypes.c_int32),
        ("first", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
    )


class _WholeDown(ctypes.Structure):
    _fields_ = (
        ("outputs", ctypes.c_int32),
        ("taps", ctypes.c_int32),
        ("first", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
    )


class _WholeAcross(ctypes.Structure):
    _fields_ = (
        ("outputs", ctypes.c_int32),
        ("taps", ctypes.c_int32),
        ("first", ctypes.c_void_p),
        ("high", ctypes.c_void_p),
        ("low", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class Matrix:
    """The matrix of one axis. `arrays` keeps alive the memory that `structure` points to.

    `sums` (n_out,): of each row of the matrix, below 1 where a resizer sees 0 beyond the border.
    `room`: down, the rows of sums that are held at once; across, the samples that a row must have
    room for. `fits`: no sum of grey levels and whole weights leaves 32 bits.
    """

    structure: ctypes.Structure
    arrays: tuple[NDArray[Any], ...]
    sums: Floats
    room: int
    fits: bool = True

    @property
    def held_bytes(self) -> int:
        """Bytes of memory in use."""
        return sum(array.nbytes for array in self.arrays) + self.sums.nbytes


def down(axis: Axis) -> Matrix:
    """Rows, in floats."""
    return _MATRICES.get((axis, "down"), lambda: _down(axis))


def across(axis: Axis) -> Matrix:
    """Columns, in floats."""
    return _MATRICES.get((axis, "across"), lambda: _across(axis))


def whole_down(axis: Axis) -> Matrix:
    """Rows, in Pillow's whole numbers."""
    return _MATRICES.get((axis, "whole down"), lambda: _whole_down(axis))


def whole_across(axis: Axis) -> Matrix:
    """Columns, in Pillow's whole numbers."""
    return _MATRICES.get((axis, "whole across"), lambda: _whole_across(axis))


def exact_taps(axis: Axis) -> Taps:
    """The matrix in float64."""
    return on_grid(taps(axis.kernel, axis.n_in, axis.n_out), axis.n_in, axis.grid)


def _matrix(axis: Axis) -> tuple[Taps, NDArray[np.intp], NDArray[np.intp]]:
    """Return the taps, and the samples that each row needs, from `low` to before `high`.

    Neither ever falls from row to row.
    """
    exact = exact_taps(axis)
    low, high = exact.reach(axis.length)
    # From the last row backwards, so that a row that begins later than the next one begins with it;
    # it has zeros there.
    return exact, np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)


class _RowSteps(NamedTuple):
    """A step takes `_STEP` rows of the input, from `starts` on.

    They belong to `counts` rows of the output from `first` on. After it, `done` rows are finished.
    """

    starts: NDArray[np.intp]
    first: NDArray[np.intp]
    counts: NDArray[np.intp]
    done: NDArray[np.intp]

    @property
    def slots(self) -> int:
        """Rows of the output that are unfinished at once, at most."""
        unfinished = np.maximum(self.first + self.counts, self.done)
        before = np.concatenate([[0], self.done[:-1]])
        return int((unfinished - before).max())

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Step and row of the output, for every row that a step adds to, in order."""
        step = np.repeat(np.arange(len(self.starts)), self.counts)
        within = np.arange(len(step)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return step, within + self.first[step]


def _steps(axis: Axis, low: NDArray[np.intp], high: NDArray[np.intp]) -> _RowSteps:
    starts = np.arange(0, axis.length, _STEP)
    first = np.searchsorted(high, starts, side="right")
    count = np.maximum(np.searchsorted(low, starts + _STEP, side="left") - first, 0)
    done = np.searchsorted(high, starts + _STEP, side="right")
    done[-1] = axis.n_out
    return _RowSteps(starts, first, count, done)


def _down(axis: Axis) -> Matrix:
    exact, low, high = _matrix(axis)
    steps = _steps(axis, low, high)
    step, row = steps.pairs
    weights = stretch(exact, row, steps.starts[step], _STEP, axis.length)
    arrays = (
        *(np.ascontiguousarray(part, np.int32) for part in steps[1:]),
        np.ascontiguousarray(weights, np.float32),
    )
    slots = steps.slots
    structure = _Down(len(steps.starts), slots, axis.n_out, *_addresses(arrays))
    return Matrix(structure, arrays, _sums(exact), slots)


def _across(axis: Axis) -> Matrix:
    exact, low, high = _matrix(axis)
    low = np.minimum(low, axis.length - 1)
    width = _width(low, high, _LANES)
    weights = np.ascontiguousarray(_rows(exact, axis, low, width), np.float32)
    arrays = (np.ascontiguousarray(low, np.int32), weights)
    structure = _Across(axis.n_out, width, *_addresses(arrays))
    return Matrix(structure, arrays, _sums(exact), max(axis.length, int(low.max()) + width))


def _width(low: NDArray[np.intp], high: NDArray[np.intp], lanes: int) -> int:
    """The most samples that a row needs, in whole multiples of `lanes`; one multiple at least."""
    return max(lanes, -(-int((high - low).max()) // lanes) * lanes)


def _rows(exact: Taps, axis: Axis, low: NDArray[np.intp], width: int) -> NDArray[np.float64]:
    """(n_out, width): each row of the matrix from its first sample on."""
    return stretch(exact, np.arange(axis.n_out), low, width, axis.length)


def _addresses(arrays: Iterable[NDArray[Any]]) -> Iterator[int]:
    return (array.ctypes.data for array in arrays)


def _whole_down(axis: Axis) -> Matrix:
    whole, low, high = _whole(axis)
    width = _width(low, high, 1)
    dense = _rows(whole, axis, low, width)
    arrays = (np.ascontiguousarray(low, np.int32), np.ascontiguousarray(dense, np.int32))
    structure = _WholeDown(axis.n_out, width, *_addresses(arrays))
    return Matrix(structure, arrays, _sums(whole), width, _fits(whole))


def _whole_across(axis: Axis) -> Matrix:
    whole, low, high = _whole(axis)
    width = _width(low, high, _SHORTS)
    dense = _rows(whole, axis, low, width)
    highs, lows = (np.ascontiguousarray(part, np.int16) for part in in_halves(dense))
    arrays = (np.ascontiguousarray(low, np.int32), highs, lows)
    structure = _WholeAcross(axis.n_out, width, *_addresses(arrays))
    room = max(axis.length, int(low.max()) + width)
    return Matrix(structure, arrays, _sums(whole), room, _fits(whole))


def _whole(axis: Axis) -> tuple[Taps, NDArray[np.intp], NDArray[np.intp]]:
    exact, low, high = _matrix(axis)
    return as_pillow_integers(exact), np.minimum(low, axis.length - 1), high


def stretch(
    exact: Taps, row: NDArray[np.intp], start: NDArray[np.intp], length: int, limit: int
) -> NDArray[np.float64]:
    """(len(row), length) of the matrix.

    Of each row the samples from its start on, 0 where the matrix or the input (`limit`) ends.
    """
    sample = start[:, None] + np.arange(length)
    tap = sample - exact.first[row][:, None]
    count = exact.weights.shape[1]
    is_there = (tap >= 0) & (tap < count) & (sample < limit)
    found = exact.weights[row[:, None], np.clip(tap, 0, count - 1)]
    return np.where(is_there, found, 0.0)


def _fits(whole: Taps) -> bool:
    """Return whether 255 times the weights of a row, and a half, stay within 32 bits.

    Regardless of their signs.
    """
    return float(np.abs(whole.weights).sum(axis=1).max()) < _LARGEST


def _sums(exact: Taps) -> Floats:
    sums: Floats = exact.weights.sum(axis=1).astype(np.float32)
    return sums


_MATRICES: BoundedCache[tuple[Axis, str], Matrix] = BoundedCache(
    _CACHE_BYTES, lambda made: made.held_bytes
)
"""Of all threads."""
