"""Resizes of a picture on a CPU, by resize.c. In floats: rows first, from the stored samples into the sums without a float picture between.

torch's products (resample.py) multiply three times as much, most of it by zero, because a product has no bands; and MKL copies both
factors into another order before. Reading each sample once, and adding it to the few sums that want it, takes a third of the time. Where
the library is missing or does not say what a product says, torch does it as before; both are within rounding of each other. Torch-free.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.bounded import BoundedCache
from hilum_preprocessing.kernels import HALF, PILLOW_ONE, Taps, as_pillow_integers, taps
from hilum_preprocessing.reduction import Axis, on_grid

Whole = NDArray[np.int32]
Short = NDArray[np.int16]
Floats = NDArray[np.float32]

LIBRARY: Final = Path(__file__).with_name("resize.so")
_INTERFACE: Final = 2
_STEP: Final = 4
_LANES: Final = 8
_SHORTS: Final = 16
_LARGEST: Final = 2 * PILLOW_ONE - 1.0
"""Of the weights of a row: 255 times that, and a half, stay within 32 bits."""
_WIDEST: Final = 1 << 30
_TOLERANCE: Final = 0.01
"""Of stored values of 12 bits: ten times what float32 rounds."""
_TYPES: Final = {np.dtype(name): number for number, name in enumerate(("u1", "i1", "u2", "i2", "f4"))}
# Of a picture that shrinks some 50 KB are used; one that grows to many more rows than it has needs all of them at once.
_MOST_BYTES: Final = 16 << 20
# As the matrices in bands.py: shapes come from outside.
_CACHE_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Samples:
    """(rows, columns) of stored values or levels, neighbours in a row being neighbours in memory.

    They are clamped to `low`..`high`, or looked up in `lookup` (256 or 65536 entries, float32) by their bits; not both. `levels`: the
    same table for whole grey levels; None: values of uint8 are grey levels.
    """

    array: NDArray[Any]
    low: float | None = None
    high: float | None = None
    lookup: Floats | None = None
    levels: NDArray[np.uint8] | None = None


class _Source(ctypes.Structure):
    _fields_ = (
        ("samples", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("is_clamped", ctypes.c_int32),
        ("low", ctypes.c_float),
        ("high", ctypes.c_float),
        ("lookup", ctypes.c_void_p),
        ("levels", ctypes.c_void_p),
    )


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
    _fields_ = (("outputs", ctypes.c_int32), ("taps", ctypes.c_int32), ("first", ctypes.c_void_p), ("weights", ctypes.c_void_p))


class _WholeDown(ctypes.Structure):
    _fields_ = (("outputs", ctypes.c_int32), ("taps", ctypes.c_int32), ("first", ctypes.c_void_p), ("weights", ctypes.c_void_p))


class _WholeAcross(ctypes.Structure):
    _fields_ = (
        ("outputs", ctypes.c_int32),
        ("taps", ctypes.c_int32),
        ("first", ctypes.c_void_p),
        ("high", ctypes.c_void_p),
        ("low", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One axis as resize.c reads it. `arrays` keeps alive what `said` points to; `sums` (n_out,) of each row of the matrix.

    `room`: down, the rows of sums that are held at once; across, the samples in each of them. `largest`: of the rows of the matrix, the
    sum of what its weights are without their signs.
    """

    said: _Down | _Across | _WholeDown | _WholeAcross
    arrays: tuple[Whole | Short | Floats, ...]
    sums: Floats
    room: int
    largest: float = 1.0

    @property
    def held_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays) + self.sums.nbytes


@dataclass(frozen=True, slots=True)
class Resized:
    """(height, width), and the sums of each row of both matrices: below 1 where a resizer sees 0 beyond the border.

    `ends`: smallest and largest sample, before it was clamped or looked up; None for floats.
    """

    image: Floats
    down: Floats
    across: Floats
    ends: tuple[int, int] | None


def resized(samples: Samples, rows: Axis, columns: Axis) -> Resized | None:
    """None where torch must do it: no library, a layout that it does not read, or sums that take too much memory."""
    library, _ = loaded()
    if library is None or not _is_readable(samples.array):
        return None
    _require_sizes(samples, rows, columns)
    return _resized(library, samples, rows, columns)


def resized_whole(samples: Samples, rows: Axis, columns: Axis) -> NDArray[np.uint8] | None:
    """(height, width) whole grey levels, to the bit as Pillow's 8-bit arithmetic makes them, columns first. None where torch must do it."""
    library, _ = loaded()
    has_levels = samples.levels is not None or samples.array.dtype == np.uint8
    if library is None or not has_levels or not _is_readable(samples.array) or samples.array.dtype == np.float32:
        return None
    _require_sizes(samples, rows, columns)
    return _resized_whole(library, samples, rows, columns)


def _require_sizes(samples: Samples, rows: Axis, columns: Axis) -> None:
    """What C would not notice. Raises ValueError."""
    entries = {table.size for table in (samples.lookup, samples.levels) if table is not None}
    if samples.array.shape != (rows.length, columns.length) or not entries <= {1 << 8 * samples.array.itemsize}:
        raise ValueError(f"{samples.array.shape} samples with tables of {entries}, for axes of {rows.length} and {columns.length}")


def _resized_whole(library: ctypes.CDLL, samples: Samples, rows: Axis, columns: Axis) -> NDArray[np.uint8] | None:
    down = _MATRICES.get((rows, "whole down"), lambda: _whole_down(rows))
    across = _MATRICES.get((columns, "whole across"), lambda: _whole_across(columns))
    if rows.length * columns.n_out > _MOST_BYTES or down.largest > _LARGEST or across.largest > _LARGEST:
        return None
    line = np.zeros(across.room, np.int16)
    narrow = np.empty((rows.length, columns.n_out), np.uint8)
    image = np.empty((rows.n_out, columns.n_out), np.uint8)
    library.hilum_resize_whole(
        ctypes.byref(_source(samples)),
        ctypes.byref(down.said),
        ctypes.byref(across.said),
        *(ctypes.c_void_p(array.ctypes.data) for array in (line, narrow, image)),
    )
    return image


def counts(array: NDArray[Any]) -> NDArray[np.int64] | None:
    """(256,) or (65536,) how often each stored value is there, by its bits, seen as an unsigned number. None where numpy must count."""
    library, _ = loaded()
    if library is None or not _is_readable(array) or array.dtype == np.float32 or array.size >= 1 << 32:
        return None
    return _counts(library, array)


def _counts(library: ctypes.CDLL, array: NDArray[Any]) -> NDArray[np.int64]:
    tables = np.zeros((4, 1 << 8 * array.itemsize), np.uint32)
    library.hilum_counts(ctypes.byref(_source(Samples(array))), ctypes.c_void_p(tables.ctypes.data), ctypes.c_int64(tables.shape[1]))
    found: NDArray[np.int64] = tables.sum(axis=0, dtype=np.int64)
    return found


def extremes(array: NDArray[Any]) -> tuple[int, int] | None:
    """Smallest and largest stored value (rows, columns); None where numpy or torch must look."""
    library, _ = loaded()
    return None if library is None or not _is_readable(array) or array.dtype == np.float32 else _extremes(library, array)


def _extremes(library: ctypes.CDLL, array: NDArray[Any]) -> tuple[int, int]:
    ends = _no_ends()
    library.hilum_extremes(ctypes.byref(_source(Samples(array))), ends)
    return ends[0], ends[1]


def _no_ends() -> ctypes.Array[ctypes.c_int32]:
    """What anything widens."""
    return (ctypes.c_int32 * 2)(_WIDEST, -_WIDEST)


@cache
def loaded() -> tuple[ctypes.CDLL | None, str]:
    """The library, and how resizes are done in words. A library that is not of this version, or does not compute right, is not used."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        interface = library.hilum_resize_interface()
        problem = _problem(library) if interface == _INTERFACE else "is of another version of Hilum"
    except (OSError, AttributeError) as error:
        problem = f"cannot be loaded ({error})"
    if problem:
        return None, f"by torch, which takes three times as long: {LIBRARY.name} {problem}"
    return library, f"compiled ({LIBRARY.name})"


def _problem(library: ctypes.CDLL) -> str:
    """Known pictures beside what numpy makes of them."""
    axes = Axis("skimage", 61, 9), Axis("pil_bicubic_aa", 1043, 23)
    picture = (np.arange(61 * 1043).reshape(61, 1043) * 7919 % 4093).astype(np.uint16)
    if (apart := _error(library, picture, *axes)) > _TOLERANCE:
        return f"computes wrong (a known picture differs by {apart:g})"
    counted = _counts(library, picture)
    is_counted = _extremes(library, picture) == (0, 4092) and np.array_equal(counted, np.bincount(picture.ravel(), minlength=65536))
    return (
        "" if is_counted and _is_whole(library, (picture % 251).astype(np.uint8), *axes) else "computes wrong (counts or whole grey levels)"
    )


def _error(library: ctypes.CDLL, picture: NDArray[np.uint16], rows: Axis, columns: Axis) -> float:
    """Largest difference from the matrix product in float64."""
    found = _resized(library, Samples(picture, low=100.0, high=4000.0), rows, columns)
    assert found is not None, "the picture is small"
    exact = _dense(_exact(rows), rows) @ np.clip(picture, 100.0, 4000.0) @ _dense(_exact(columns), columns).T
    return np.inf if found.ends != (0, 4092) else float(np.abs(found.image - exact).max())


def _is_whole(library: ctypes.CDLL, levels: NDArray[np.uint8], rows: Axis, columns: Axis) -> bool:
    """Columns first, in whole numbers."""
    made = levels.astype(np.int64)
    for axis in (columns, rows):
        weights = _dense(as_pillow_integers(_exact(axis)), axis).astype(np.int64)
        made = (((made @ weights.T + PILLOW_ONE // 2) // PILLOW_ONE).clip(0, 255)).T
    found = _resized_whole(library, Samples(levels), rows, columns)
    return found is not None and np.array_equal(found, made)


def _dense(exact: Taps, axis: Axis) -> NDArray[np.float64]:
    return _stretch(exact, np.arange(axis.n_out), np.zeros(axis.n_out, np.intp), axis.length, axis.length)


def _is_readable(array: NDArray[Any]) -> bool:
    is_known = array.dtype in _TYPES and array.flags.aligned and array.size > 0
    return is_known and array.strides[1] == array.itemsize and array.strides[0] % array.itemsize == 0


def _resized(library: ctypes.CDLL, samples: Samples, rows: Axis, columns: Axis) -> Resized | None:
    down = _MATRICES.get((rows, "down"), lambda: _down(rows))
    across = _MATRICES.get((columns, "across"), lambda: _across(columns))
    if down.room * across.room * 4 > _MOST_BYTES:
        return None
    sums = np.empty((down.room, across.room), np.float32)
    image, ends = np.empty((rows.n_out, columns.n_out), np.float32), _no_ends()
    library.hilum_resize(
        ctypes.byref(_source(samples)),
        ctypes.byref(down.said),
        ctypes.byref(across.said),
        ctypes.c_void_p(sums.ctypes.data),
        ctypes.c_int64(across.room),
        ctypes.c_void_p(image.ctypes.data),
        ends,
    )
    return Resized(image, down.sums, across.sums, None if samples.array.dtype == np.float32 else (ends[0], ends[1]))


def _source(samples: Samples) -> _Source:
    array = samples.array
    return _Source(
        samples=array.ctypes.data,
        stride=array.strides[0] // array.itemsize,
        rows=array.shape[0],
        columns=array.shape[1],
        type=_TYPES[array.dtype],
        is_clamped=samples.low is not None or samples.high is not None,
        low=-np.inf if samples.low is None else samples.low,
        high=np.inf if samples.high is None else samples.high,
        lookup=None if samples.lookup is None else samples.lookup.ctypes.data,
        levels=None if samples.levels is None else samples.levels.ctypes.data,
    )


def _matrix(axis: Axis) -> tuple[Taps, NDArray[np.intp], NDArray[np.intp]]:
    """The taps, and the samples that each row needs, from `low` to before `high`, neither of which ever falls from row to row."""
    exact = _exact(axis)
    is_used = exact.weights != 0
    is_empty = ~is_used.any(axis=1)
    low = np.where(is_empty, 0, exact.first + is_used.argmax(axis=1))
    high = np.where(is_empty, 0, exact.first + is_used.shape[1] - is_used[:, ::-1].argmax(axis=1))
    # From the last row backwards, so that a row that begins later than the next one begins with it; it has zeros there.
    return exact, np.minimum.accumulate(np.where(is_empty, axis.length, low)[::-1])[::-1], np.maximum.accumulate(high)


def _exact(axis: Axis) -> Taps:
    return on_grid(taps(axis.kernel, axis.n_in, axis.n_out), axis.n_in, axis.grid)


def _down(axis: Axis) -> _Matrix:
    exact, low, high = _matrix(axis)
    starts = np.arange(0, axis.length, _STEP)
    first = np.searchsorted(high, starts, side="right")
    count = np.maximum(np.searchsorted(low, starts + _STEP, side="left") - first, 0)
    done = np.searchsorted(high, starts + _STEP, side="right")
    done[-1] = axis.n_out
    slots = int((np.maximum(first + count, done) - np.concatenate([[0], done[:-1]])).max())
    step = np.repeat(np.arange(len(starts)), count)
    row = np.arange(len(step)) - np.repeat(np.cumsum(count) - count, count) + first[step]
    weights = _weights(exact, row, starts[step], _STEP, axis.length)
    first, count, done = (np.ascontiguousarray(array, np.int32) for array in (first, count, done))
    arrays = (first, count, done, weights)
    said = _Down(len(starts), slots, axis.n_out, *(array.ctypes.data for array in arrays))
    return _Matrix(said, arrays, _sums(exact), slots)


def _across(axis: Axis) -> _Matrix:
    exact, low, high = _matrix(axis)
    low = np.minimum(low, axis.length - 1)
    length = max(_LANES, -(-int((high - low).max()) // _LANES) * _LANES)
    arrays = (np.ascontiguousarray(low, np.int32), _weights(exact, np.arange(axis.n_out), low, length, axis.length))
    said = _Across(axis.n_out, length, *(array.ctypes.data for array in arrays))
    return _Matrix(said, arrays, _sums(exact), max(axis.length, int(low.max()) + length))


def _whole_down(axis: Axis) -> _Matrix:
    whole, low, high = _whole(axis)
    length = max(1, int((high - low).max()))
    arrays = (
        np.ascontiguousarray(low, np.int32),
        np.ascontiguousarray(_stretch(whole, np.arange(axis.n_out), low, length, axis.length), np.int32),
    )
    return _Matrix(_WholeDown(axis.n_out, length, *(array.ctypes.data for array in arrays)), arrays, _sums(whole), length, _largest(whole))


def _whole_across(axis: Axis) -> _Matrix:
    whole, low, high = _whole(axis)
    length = max(_SHORTS, -(-int((high - low).max()) // _SHORTS) * _SHORTS)
    dense = _stretch(whole, np.arange(axis.n_out), low, length, axis.length)
    halves = np.rint(dense / HALF)
    highs, lows = (np.ascontiguousarray(part, np.int16) for part in (halves, dense - halves * HALF))
    first = np.ascontiguousarray(low, np.int32)
    said = _WholeAcross(axis.n_out, length, first.ctypes.data, highs.ctypes.data, lows.ctypes.data)
    return _Matrix(said, (first, highs, lows), _sums(whole), max(axis.length, int(low.max()) + length), _largest(whole))


def _whole(axis: Axis) -> tuple[Taps, NDArray[np.intp], NDArray[np.intp]]:
    exact, low, high = _matrix(axis)
    return as_pillow_integers(exact), np.minimum(low, axis.length - 1), high


def _weights(exact: Taps, row: NDArray[np.intp], start: NDArray[np.intp], length: int, limit: int) -> Floats:
    return np.ascontiguousarray(_stretch(exact, row, start, length, limit), np.float32)


def _stretch(exact: Taps, row: NDArray[np.intp], start: NDArray[np.intp], length: int, limit: int) -> NDArray[np.float64]:
    """(len(row), length) of the matrix: of each row the samples from its start on, 0 where the matrix or the input (`limit`) ends."""
    sample = start[:, None] + np.arange(length)
    tap = sample - exact.first[row][:, None]
    is_there = (tap >= 0) & (tap < exact.weights.shape[1]) & (sample < limit)
    found = exact.weights[row[:, None], np.clip(tap, 0, exact.weights.shape[1] - 1)]
    return np.where(is_there, found, 0.0)


def _largest(exact: Taps) -> float:
    return float(np.abs(exact.weights).sum(axis=1).max())


def _sums(exact: Taps) -> Floats:
    sums: Floats = exact.weights.sum(axis=1).astype(np.float32)
    return sums


_MATRICES: BoundedCache[tuple[Axis, str], _Matrix] = BoundedCache(_CACHE_BYTES, lambda made: made.held_bytes)
"""Of all threads."""
