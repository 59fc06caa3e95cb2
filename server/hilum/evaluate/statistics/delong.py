"""The variance of areas under ROC curves on the same cases, and the test of their difference.

DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988), by the midranks of Sun and Xu (IEEE Signal
Processing Letters 21, 2014): n log n in the number of cases. Cases count as independent, so the
intervals are too narrow where a patient has several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hilum.evaluate.statistics.areas import Floats, Truths, midranks

Z95: Final = 1.959963984540054


@dataclass(frozen=True, slots=True)
class AreasUnderCurves:
    """Areas of several score columns, and the covariance of their estimates."""

    areas: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Second area minus the first, with a 95 % interval and a two-sided p.

    `p` is None where the variance is zero.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float | None


def delong(truth: Truths, columns: Sequence[Floats]) -> AreasUnderCurves | None:
    """Return areas and covariance; None: fewer than two cases of a class."""
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if positives < 2 or negatives < 2:
        return None
    shares = [_shares(truth, scores) for scores in columns]
    of_positives = [each[0] for each in shares]
    of_negatives = [each[1] for each in shares]
    return AreasUnderCurves(
        np.array([each.mean() for each in of_positives]),
        _covariance(of_positives) + _covariance(of_negatives),
    )


def _shares(truth: Truths, scores: Floats) -> tuple[Floats, Floats]:
    """Return the share of negative cases below each positive one, and of positive ones above."""
    positives = int(truth.sum())
    together = midranks(scores)
    above = (together[truth] - midranks(scores[truth])) / (len(truth) - positives)
    below = 1 - (together[~truth] - midranks(scores[~truth])) / positives
    return above, below


def _covariance(shares: Sequence[Floats]) -> Floats:
    """Return the covariance of the means of these columns."""
    found: Floats = np.atleast_2d(np.cov(shares)) / len(shares[0])
    return found


def delong_interval(truth: Truths, scores: Floats) -> tuple[float, float] | None:
    """Return the 95 % interval of one area, within 0 and 1; None: it cannot be estimated."""
    found = delong(truth, [scores])
    if found is None:
        return None
    area = float(found.areas[0])
    margin = Z95 * math.sqrt(max(0.0, float(found.covariance[0, 0])))
    return max(0.0, area - margin), min(1.0, area + margin)


def paired_difference(truth: Truths, first: Floats, second: Floats) -> PairedDifference | None:
    """Compare two score columns on the same cases; None: it cannot be estimated."""
    found = delong(truth, [first, second])
    if found is None:
        return None
    error = _error_of_difference(found.covariance)
    difference = float(found.areas[1] - found.areas[0])
    return PairedDifference(
        first=float(found.areas[0]),
        second=float(found.areas[1]),
        difference=difference,
        low=difference - Z95 * error,
        high=difference + Z95 * error,
        p=_two_sided(difference, error),
    )


def _two_sided(difference: float, error: float) -> float | None:
    return math.erfc(abs(difference) / error / math.sqrt(2)) if error > 0 else None


def _error_of_difference(covariance: Floats) -> float:
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    return math.sqrt(max(0.0, float(variance)))
