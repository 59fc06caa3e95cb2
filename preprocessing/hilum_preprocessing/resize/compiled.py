"""The compiled code for CPUs (resize.c): resizes, extremes, histograms, guard statistics.

Each function returns None where torch or numpy must do the work. torch's products
(resize/resample.py) multiply three times as much, most of it by zero, because a product has no
bands; and MKL copies both factors into another order before. Reading each sample once, and adding
it to the few sums that need it, takes a third of the time. Where the library is missing or fails
its known pictures, torch does it; both are within rounding of each other. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.resize import library as resize_library
from hilum_preprocessing.resize.axes import Axis
from hilum_preprocessing.resize.compiled_library import checked
from hilum_preprocessing.resize.kernels import PILLOW_ONE, Taps, as_pillow_integers
from hilum_preprocessing.resize.library import GridStatistics, Library, Resized, SampleBuffer
from hilum_preprocessing.resize.matrices import exact_taps, stretch

__all__ = [
    "GridStatistics",
    "Resized",
    "SampleBuffer",
    "counts",
    "extremes",
    "finish",
    "grid_statistics",
    "has_halves",
    "into_halves",
    "loaded",
    "resized",
    "resized_whole",
]

_STORED: Final = frozenset(np.dtype(name) for name in ("u1", "i1", "u2", "i2"))
_TOLERANCE: Final = 0.01
"""Of stored values of 12 bits: ten times what float32 rounds."""


def resized(samples: SampleBuffer, rows: Axis, columns: Axis) -> Resized | None:
    """In floats."""
    library, _ = loaded()
    return (
        library.resize(samples, rows, columns)
        if library is not None and samples.are_readable
        else None
    )


def finish(made: Resized, line: tuple[float, float], limits: tuple[float, float]) -> None:
    """Apply slope, offset and limits in place to the result of `resized`."""
    library, _ = loaded()
    assert library is not None, "it made this"
    library.finish(made, line, limits)


def has_halves() -> bool:
    """Whether `into_halves` can be asked.

    The library is there, and this processor makes halves of floats.
    """
    library, _ = loaded()
    return library is not None and library.has_halves


def into_halves(
    made: Resized, line: tuple[float, float], limits: tuple[float, float]
) -> NDArray[np.float16]:
    """Return (height, width) the result of `finish` in half precision.

    Rounded to nearest even, as torch does.
    """
    library, _ = loaded()
    assert library is not None, "it made this"
    return library.into_halves(made, line, limits)


def resized_whole(samples: SampleBuffer, rows: Axis, columns: Axis) -> NDArray[np.uint8] | None:
    """Return (height, width) whole grey levels, to the bit as Pillow's 8-bit arithmetic.

    Columns first.
    """
    library, _ = loaded()
    return (
        library.resize_whole(samples, rows, columns)
        if library is not None and samples.have_grey_levels
        else None
    )


def extremes(array: NDArray[Any]) -> tuple[int, int] | None:
    """Smallest and largest stored value (rows, columns)."""
    library = loaded()[0]
    samples = SampleBuffer(array)
    return library.extremes(samples) if library is not None and samples.are_stored else None


def counts(array: NDArray[Any]) -> NDArray[np.int64] | None:
    """Return (256,) or (65536,) the count of each stored value, by its unsigned bits."""
    library = loaded()[0]
    samples = SampleBuffer(array)
    return (
        library.counts(samples)
        if library is not None and samples.are_stored and array.size < 1 << 32
        else None
    )


def grid_statistics(
    grid: NDArray[Any],
    lowest: int,
    nominal: int,
    places: Sequence[tuple[int, int, float]],
    *,
    is_inverted: bool,
) -> GridStatistics | None:
    """Return the pixel guard's statistics of stored values (rows, columns).

    `grid` may have any strides.
    """
    library, _ = loaded()
    is_known = (
        grid.dtype in _STORED
        and grid.flags.aligned
        and grid.size > 0
        and not any(part % grid.itemsize for part in grid.strides)
    )
    return (
        library.grid_statistics(grid, lowest, nominal, places, is_inverted=is_inverted)
        if library is not None and is_known
        else None
    )


@cache
def loaded() -> tuple[Library | None, str]:
    """The library, and how resizes are done in words.

    A library that is not of this version, or does not compute right, is not used.
    """
    library, how = checked(resize_library.PATH, Library, _problem)
    if library is None:
        return None, f"by torch, which takes three times as long: {how}"
    return library, f"compiled ({how})"


def _problem(library: Library) -> str:
    """Compare known pictures with numpy's result; return the difference in words, or ""."""
    axes = Axis("skimage", 61, 9), Axis("pil_bicubic_aa", 1043, 23)
    picture = (np.arange(61 * 1043).reshape(61, 1043) * 7919 % 4093).astype(np.uint16)
    if (apart := _error(library, picture, *axes)) > _TOLERANCE:
        return f"computes wrong (a known picture differs by {apart:g})"
    if not np.array_equal(
        library.counts(SampleBuffer(picture)), np.bincount(picture.ravel(), minlength=65536)
    ):
        return "computes wrong (counts)"
    if library.extremes(SampleBuffer(picture)) != (0, 4092):
        return "computes wrong (extremes)"
    if not _has_statistics(library, picture):
        return "computes wrong (statistics)"
    return (
        ""
        if _is_whole(library, (picture % 251).astype(np.uint8), *axes)
        else "computes wrong (whole grey levels)"
    )


def _error(library: Library, picture: NDArray[np.uint16], rows: Axis, columns: Axis) -> float:
    """Largest difference from the matrix product in float64."""
    found = library.resize(SampleBuffer(picture, low=100.0, high=4000.0), rows, columns)
    assert found is not None, "the picture is small"
    how = (0.5, -300.0), (600.0, 720.0)
    halves = (
        library.into_halves(replace(found, image=found.image.copy()), *how)
        if library.has_halves
        else None
    )
    library.finish(found, *how)
    if halves is not None and not np.array_equal(halves, found.image.astype(np.float16)):
        return np.inf
    down = _dense(exact_taps(rows), rows)
    across = _dense(exact_taps(columns), columns)
    exact = (down @ (np.clip(picture, 100.0, 4000.0) * 0.5 - 300.0) @ across.T).clip(600.0, 720.0)
    return np.inf if found.ends != (0, 4092) else float(np.abs(found.image - exact).max())


def _has_statistics(library: Library, picture: NDArray[np.uint16]) -> bool:
    """Return whether percentiles and the statistics derived last are right."""
    place = 0.25 * (picture.size - 1)
    places = [(int(part * place), int(part * place) + 1, part * place % 1) for part in (1, 3)]
    seen = library.grid_statistics(picture, 0, 4092, places, is_inverted=False)
    low, high = np.percentile(picture, (25, 75))
    levels = np.clip((picture - low) / (high - low), 0, 1)
    centred = levels - levels.mean()
    wanted = (low, high, levels.var(), (centred * centred[:, ::-1]).mean(), picture.size)
    return np.allclose(
        (seen.low, seen.high, seen.variance, seen.mirrored, sum(seen.counts)),
        wanted,
        rtol=1e-9,
        atol=1e-9,
    )


def _is_whole(library: Library, levels: NDArray[np.uint8], rows: Axis, columns: Axis) -> bool:
    """Columns first, in whole numbers."""
    made = levels.astype(np.int64)
    for axis in (columns, rows):
        weights = _dense(as_pillow_integers(exact_taps(axis)), axis).astype(np.int64)
        made = (((made @ weights.T + PILLOW_ONE // 2) // PILLOW_ONE).clip(0, 255)).T
    found = library.resize_whole(SampleBuffer(levels), rows, columns)
    return found is not None and np.array_equal(found, made)


def _dense(exact: Taps, axis: Axis) -> NDArray[np.float64]:
    return stretch(
        exact, np.arange(axis.n_out), np.zeros(axis.n_out, np.intp), axis.length, axis.length
    )
