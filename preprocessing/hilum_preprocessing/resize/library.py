"""resize.c from Python: a picture, its tables and its axes as C structures.

Its callers use resize/compiled.py, which decides when. Torch-free.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.resize import matrices
from hilum_preprocessing.resize.axes import Axis
from hilum_preprocessing.resize.matrices import Floats

PATH: Final = Path(__file__).with_name("resize.so")
_INTERFACE: Final = 5
_FUNCTIONS: Final = (
    "hilum_resize",
    "hilum_resize_whole",
    "hilum_finish",
    "hilum_halves",
    "hilum_extremes",
    "hilum_counts",
    "hilum_look",
)
_WIDEST: Final = 1 << 30
_TYPES: Final = {
    np.dtype(name): number for number, name in enumerate(("u1", "i1", "u2", "i2", "f4"))
}
# Of a picture that shrinks some 50 KB are used; one that grows to many more rows than it has needs
# all of them at once.
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class SampleBuffer:
    """(rows, columns) of stored values or levels, neighbours in a row being neighbours in memory.

    They are clamped to `low`..`high`, or looked up in `lookup` (256 or 65536 entries, float32) by
    their bits; not both. `levels`: the same table for whole grey levels; None: values of uint8 are
    grey levels.
    """

    array: NDArray[Any]
    low: float | None = None
    high: float | None = None
    lookup: Floats | None = None
    levels: NDArray[np.uint8] | None = None

    @property
    def are_readable(self) -> bool:
        """Whether C reads this type and layout."""
        array = self.array
        is_known = array.dtype in _TYPES and array.flags.aligned and array.size > 0
        return (
            is_known
            and array.strides[1] == array.itemsize
            and array.strides[0] % array.itemsize == 0
        )

    @property
    def are_stored(self) -> bool:
        """Readable, and whole numbers."""
        return self.are_readable and self.array.dtype != np.float32

    @property
    def have_grey_levels(self) -> bool:
        """Readable, and whole grey levels or on the way to them."""
        return self.are_stored and (self.levels is not None or self.array.dtype == np.uint8)


@dataclass(frozen=True, slots=True)
class Resized:
    """(height, width), and the sums of each row of both matrices.

    `ends`: smallest and largest sample, before it was clamped or looked up; None for floats.
    """

    image: Floats
    down: Floats
    across: Floats
    ends: tuple[int, int] | None


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


class _Finish(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("slope", ctypes.c_float),
        ("offset", ctypes.c_float),
        ("low", ctypes.c_float),
        ("high", ctypes.c_float),
        ("down", ctypes.c_void_p),
        ("across", ctypes.c_void_p),
    )


class _Grid(ctypes.Structure):
    _fields_ = (
        ("samples", ctypes.c_void_p),
        ("row_stride", ctypes.c_int64),
        ("column_stride", ctypes.c_int64),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("is_inverted", ctypes.c_int32),
        ("lowest", ctypes.c_double),
        ("nominal", ctypes.c_double),
        ("parts", ctypes.c_double * 2),
        ("places", ctypes.c_int32 * 4),
    )


class GridStatistics(ctypes.Structure):
    """The pixel guard's statistics of a grid of n samples, levels from 1st to 99th percentile.

    The 1st percentile is level 0, the 99th level 1. `low`, `high`: these percentiles. `counts`
    (64): levels. `dark`, `bright`: samples at the ends of the nominal range. `variance` of the
    levels, and `mirrored`, their covariance with the mirror image. `spine` and `lungs`: mean levels
    of three parts.
    """

    _fields_ = (
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("counts", ctypes.c_int32 * 64),
        ("dark", ctypes.c_int32),
        ("bright", ctypes.c_int32),
        ("variance", ctypes.c_double),
        ("mirrored", ctypes.c_double),
        ("spine", ctypes.c_double),
        ("lungs", ctypes.c_double * 2),
    )


class Library:
    """The functions of resize.c, safe for any number of threads.

    Arguments must be readable; calls release the interpreter's lock.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError or AttributeError for no such library, ValueError for another version."""
        self._c = ctypes.CDLL(str(path))
        if self._c.hilum_resize_interface() != _INTERFACE:
            raise ValueError("another version of Hilum")
        for name in _FUNCTIONS:
            getattr(self._c, name).restype = None
        self.has_halves = bool(self._c.hilum_has_halves())

    def resize(self, samples: SampleBuffer, rows: Axis, columns: Axis) -> Resized | None:
        """In floats. None where the sums would take too much memory."""
        _require_sizes(samples, rows, columns)
        down = matrices.down(rows)
        across = matrices.across(columns)
        if down.room * across.room * 4 > _MOST_BYTES:
            return None
        sums = np.empty((down.room, across.room), np.float32)
        image = np.empty((rows.n_out, columns.n_out), np.float32)
        ends = _no_ends()
        width = ctypes.c_int64(across.room)
        self._c.hilum_resize(
            _source(samples),
            ctypes.byref(down.structure),
            ctypes.byref(across.structure),
            _at(sums),
            width,
            _at(image),
            ends,
        )
        return Resized(
            image, down.sums, across.sums, (ends[0], ends[1]) if samples.are_stored else None
        )

    def finish(self, made: Resized, line: tuple[float, float], limits: tuple[float, float]) -> None:
        """Apply to a resize's result the steps that were left out before it.

        Slope and offset, then the limits.
        """
        self._c.hilum_finish(_finishing(made, line, limits), _at(made.image))

    def into_halves(
        self, made: Resized, line: tuple[float, float], limits: tuple[float, float]
    ) -> NDArray[np.float16]:
        """(height, width) the same in half precision; the floats are finished, too.

        Only where it `has_halves`.
        """
        halves = np.empty(made.image.shape, np.float16)
        self._c.hilum_halves(_finishing(made, line, limits), _at(made.image), _at(halves))
        return halves

    def resize_whole(
        self, samples: SampleBuffer, rows: Axis, columns: Axis
    ) -> NDArray[np.uint8] | None:
        """(height, width) whole grey levels by Pillow's 8-bit arithmetic, columns first.

        None as above, or where sums overflow.
        """
        _require_sizes(samples, rows, columns)
        down = matrices.whole_down(rows)
        across = matrices.whole_across(columns)
        if rows.length * columns.n_out > _MOST_BYTES or not (down.fits and across.fits):
            return None
        line = np.zeros(across.room, np.int16)
        narrow = np.empty((rows.length, columns.n_out), np.uint8)
        image = np.empty((rows.n_out, columns.n_out), np.uint8)
        both = (ctypes.byref(matrix.structure) for matrix in (down, across))
        self._c.hilum_resize_whole(_source(samples), *both, _at(line), _at(narrow), _at(image))
        return image

    def extremes(self, samples: SampleBuffer) -> tuple[int, int]:
        """Smallest and largest stored value."""
        ends = _no_ends()
        self._c.hilum_extremes(_source(samples), ends)
        return ends[0], ends[1]

    def counts(self, samples: SampleBuffer) -> NDArray[np.int64]:
        """Return (256,) or (65536,) the count of each stored value, by its unsigned bits.

        For fewer than 2^32 pixels.
        """
        tables = np.zeros((4, 1 << 8 * samples.array.itemsize), np.uint32)
        self._c.hilum_counts(_source(samples), _at(tables), ctypes.c_int64(tables.shape[1]))
        found: NDArray[np.int64] = tables.sum(axis=0, dtype=np.int64)
        return found

    def grid_statistics(
        self,
        grid: NDArray[Any],
        lowest: int,
        nominal: int,
        places: Sequence[tuple[int, int, float]],
        *,
        is_inverted: bool,
    ) -> GridStatistics:
        """Of a grid of stored values, at least one, at most 2^31.

        `places`: two places in their order and the way between them, twice.
        """
        (a, b, first), (c, d, second) = places
        strides = (stride // grid.itemsize for stride in grid.strides)
        described = _Grid(
            grid.ctypes.data,
            *strides,
            *grid.shape,
            _TYPES[grid.dtype],
            is_inverted,
            lowest,
            nominal,
            (first, second),
            (a, b, c, d),
        )
        keys = np.empty(grid.size, np.uint16)
        levels, products = np.empty((2, grid.size))
        found = GridStatistics()
        self._c.hilum_look(
            ctypes.byref(described), _at(keys), _at(levels), _at(products), ctypes.byref(found)
        )
        return found


def _require_sizes(samples: SampleBuffer, rows: Axis, columns: Axis) -> None:
    """Check sizes that C cannot check. Raises ValueError."""
    entries = {table.size for table in (samples.lookup, samples.levels) if table is not None}
    if samples.array.shape != (rows.length, columns.length) or not entries <= {
        1 << 8 * samples.array.itemsize
    }:
        raise ValueError(
            f"{samples.array.shape} samples with tables of {entries}, for axes of {rows.length} and"
            f" {columns.length}"
        )


def _source(samples: SampleBuffer) -> Any:  # noqa: ANN401 - what byref gives has no public name
    array = samples.array
    return ctypes.byref(
        _Source(
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
    )


def _finishing(made: Resized, line: tuple[float, float], limits: tuple[float, float]) -> Any:  # noqa: ANN401 - see above
    return ctypes.byref(
        _Finish(*made.image.shape, *line, *limits, made.down.ctypes.data, made.across.ctypes.data)
    )


def _at(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _no_ends() -> ctypes.Array[ctypes.c_int32]:
    """Return ends that any sample widens."""
    return (ctypes.c_int32 * 2)(_WIDEST, -_WIDEST)
