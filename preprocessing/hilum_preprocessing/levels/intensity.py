"""The intensity operations on levels, in float64. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.levels.tables import Levels, Values
from hilum_preprocessing.spec.operations import (
    Clamp,
    EqualizeHist,
    IntensityOp,
    Invert,
    Maxval,
    MinMax,
    Percentile,
    Scale,
    ToUint8,
)


def apply_intensity(levels: Levels, op: IntensityOp) -> Levels:
    """One operation. Raises NotAnalysable where this picture does not allow it."""
    return _INTENSITY[type(op)](levels, op)


def invert(levels: Levels) -> Levels:
    """Low + high - x: within the nominal range, not within this picture's."""
    return levels.with_range(levels.low + levels.high - levels.values, levels.low, levels.high)


def stretch(levels: Levels, low: float, high: float) -> Levels:
    """Map `low` to 0 and `high` to 1, and clamp values outside."""
    if low == high:
        raise NotAnalysable(
            Reason.CONSTANT_IMAGE,
            "the picture has one level where the specification stretches its range",
        )
    return levels.with_range(np.clip((levels.values - low) / (high - low), 0.0, 1.0), 0.0, 1.0)


def _maxval(levels: Levels, op: Maxval) -> Levels:
    low, span = (
        (levels.low, levels.high - levels.low) if op.of == "bits" else (0.0, _span(levels, op))
    )
    scaled = levels.map(lambda value: (value - low) / span)
    if op.outside == "reject" and (scaled.picture.min() < 0.0 or scaled.picture.max() > 1.0):
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            "values below 0 or above the maximum that the specification names",
        )
    return scaled


def _span(levels: Levels, op: Maxval) -> float:
    return levels.two_to_bits if op.of == "two_to_bits" else float(op.of)


def _minmax(levels: Levels, _: MinMax) -> Levels:
    return stretch(levels, levels.picture.min(), levels.picture.max())


def _percentile(levels: Levels, op: Percentile) -> Levels:
    return stretch(levels, *percentiles(levels, (op.low, op.high)))


def percentiles(levels: Levels, wanted: tuple[float, ...]) -> list[float]:
    """Return the same as numpy.percentile of all pixels, from the count of each level.

    Linear between the two nearest levels.
    """
    order = np.argsort(levels.picture, kind="stable")
    values = levels.picture[order]
    last = np.cumsum(levels.picture_counts[order])
    places = np.array(wanted) / 100.0 * (last[-1] - 1)
    below, above = (
        values[np.searchsorted(last, whole, side="right")]
        for whole in (np.floor(places), np.ceil(places))
    )
    found: list[float] = (below + (above - below) * (places - np.floor(places))).tolist()
    return found


def _clamp(levels: Levels, op: Clamp) -> Levels:
    return levels.with_range(np.clip(levels.values, op.low, op.high), op.low, op.high)


def _to_uint8(levels: Levels, op: ToUint8) -> Levels:
    scaled = levels.values * 255.0
    whole = np.trunc(scaled) if op.mode == "truncate" else np.rint(scaled)
    return levels.with_range(np.clip(whole, 0.0, 255.0), 0.0, 255.0)


def _equalize_hist(levels: Levels, _: EqualizeHist) -> Levels:
    counts = np.bincount(
        levels.picture.astype(np.intp), weights=levels.picture_counts, minlength=256
    ).astype(np.int64)
    return levels.with_range(equalized(counts)[levels.values.astype(np.intp)], 0.0, 255.0)


def equalized(counts: np.ndarray[Any, np.dtype[np.int64]]) -> Values:
    """(256,) the level that each one becomes, in cv2.equalizeHist's float32.

    Pixels of the darkest level do not count.
    """
    darkest = int(np.flatnonzero(counts)[0])
    rest = counts.sum() - counts[darkest]
    if rest == 0:
        raise NotAnalysable(
            Reason.CONSTANT_IMAGE, "all pixels have one grey level before equalize_hist"
        )
    sums = np.cumsum(np.where(np.arange(256) > darkest, counts, 0)).astype(np.float32)
    table: Values = (
        np.rint(sums * (np.float32(255) / np.float32(rest))).clip(0, 255).astype(np.float64)
    )
    return table


def _invert(levels: Levels, _: Invert) -> Levels:
    return invert(levels)


def _scale(levels: Levels, op: Scale) -> Levels:
    return levels.map(lambda value: value * op.multiply + op.add)


_INTENSITY: dict[type[IntensityOp], Callable[[Levels, Any], Levels]] = {
    Maxval: _maxval,
    MinMax: _minmax,
    Percentile: _percentile,
    Clamp: _clamp,
    ToUint8: _to_uint8,
    EqualizeHist: _equalize_hist,
    Invert: _invert,
    Scale: _scale,
}
