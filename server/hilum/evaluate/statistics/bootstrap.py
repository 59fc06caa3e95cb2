"""The percentile bootstrap, which draws patients with all their cases.

Cases of one patient are alike, so that a draw of single cases would give intervals that are too
narrow. A resample is a weight for each case: how often its patient was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hilum.evaluate.statistics.areas import Floats, Truths

Rows = NDArray[np.intp]
Weights = NDArray[np.float32]
_CELLS_AT_ONCE: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class ResampledInterval:
    """A 95 % interval. None: no resample had both classes. `skipped`: resamples without them."""

    low: float | None
    high: float | None
    skipped: int


class RankedCases:
    """Cases of one class in the order of their scores, for areas under many weights."""

    def __init__(
        self, rows: Rows, truth: Truths, scores: Floats, *, has_average: bool = True
    ) -> None:
        order = np.argsort(scores, kind="stable")
        ordered = scores[order]
        self._rows = rows[order]
        self._truth = truth[order].astype(np.float32)
        starts = np.flatnonzero(np.diff(ordered, prepend=np.nan) != 0)
        self._starts = None if len(starts) == len(ordered) else starts
        self._has_average = has_average

    def areas(self, weights: Weights) -> tuple[Floats, Floats]:
        """Return AUROC and average precision under each row of weights; NaN: a class is absent.

        The second is NaN without `has_average`.
        """
        drawn = weights[:, self._rows]
        positive = drawn * self._truth
        negative = drawn - positive
        if self._starts is not None:  # equal scores are one step
            positive = np.add.reduceat(positive, self._starts, axis=1)
            negative = np.add.reduceat(negative, self._starts, axis=1)
        below = np.cumsum(negative, axis=1)
        positives = positive.sum(axis=1, dtype=np.float64)
        negatives = below[:, -1].astype(np.float64)
        pairs = np.einsum("ij,ij->i", positive, below - negative / 2, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            area = pairs / (positives * negatives)
        average = np.full(len(weights), np.nan)
        if self._has_average:
            false = below[:, -1:] - below + negative
            average = _average(positive, false)
            average[negatives == 0] = np.nan
        return area, average


def _average(positive: Weights, false: Weights) -> Floats:
    """Return the average precision. `false`: negative cases at the score of each step or above."""
    reached = np.cumsum(positive, axis=1)
    hits = reached[:, -1:] - reached + positive
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.nan_to_num(hits / (hits + false))
        average: Floats = np.einsum("ij,ij->i", positive, precision, dtype=np.float64)
        return average / reached[:, -1]


class CountedRates:
    """Shares of cases, such as sensitivities, for many weights."""

    def __init__(self, counted: Sequence[Truths], among: Sequence[Truths]) -> None:
        self._counted = np.array(counted, dtype=np.float32).T
        self._among = np.array(among, dtype=np.float32).T

    def rates(self, weights: Weights) -> Floats:
        """Return each share under each row of weights; NaN: nothing to count."""
        if not self._counted.size:
            return np.empty((len(weights), 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            shares: Floats = (weights @ self._counted).astype(np.float64) / (weights @ self._among)
        return shares


def resamples(patients: Rows, count: int, seed: int) -> Iterator[Weights]:
    """Yield weights, some resamples at a time. `patients`: the number of each case's patient."""
    generator = np.random.default_rng(seed)
    number = int(patients.max()) + 1
    at_once = max(1, _CELLS_AT_ONCE // len(patients))
    for begin in range(0, count, at_once):
        size = min(at_once, count - begin)
        drawn = generator.integers(0, number, size=(size, number))
        yield _times(drawn)[:, patients]


def _times(drawn: NDArray[np.int64]) -> Weights:
    """Return how often each patient was drawn, a row a resample."""
    size, number = drawn.shape
    shifted = drawn + np.arange(size)[:, None] * number
    times = np.bincount(shifted.ravel(), minlength=size * number)
    return times.reshape(size, number).astype(np.float32)


def percentile_interval(values: Floats) -> ResampledInterval:
    """Return the 2.5th and 97.5th percentile of the defined values."""
    defined = values[~np.isnan(values)]
    skipped = len(values) - len(defined)
    if not len(defined):
        return ResampledInterval(None, None, skipped)
    low, high = np.percentile(defined, [2.5, 97.5])
    return ResampledInterval(float(low), float(high), skipped)
