"""How far scores from 0 to 1 are shares: reliability, expected calibration error, Brier score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from hilum.evaluate.statistics.areas import Floats, Truths

BINS: Final = 10


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Cases with scores in one tenth. `score`: their mean; `positive`: the share of positives."""

    cases: int
    score: float
    positive: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """Ten bins of equal width without the empty ones, the ECE and the Brier score.

    The upper end of a bin belongs to it, as in Guo and others (ICML 2017).
    ECE: Naeini and others (AAAI 2015). Brier (Monthly Weather Review 78, 1950).
    """

    bins: tuple[ReliabilityBin, ...]
    expected_calibration_error: float
    brier: float


def reliability(truth: Truths, scores: Floats) -> Reliability | None:
    """Return the reliability; None: no case, or scores outside 0 to 1."""
    if not len(scores) or scores.min() < 0 or scores.max() > 1:
        return None
    number = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], scores)
    counts = np.bincount(number, minlength=BINS)
    scored = np.bincount(number, scores, BINS)
    positive = np.bincount(number, truth.astype(np.float64), BINS)
    return Reliability(
        bins=tuple(_bin(*sums) for sums in zip(counts, scored, positive, strict=True) if sums[0]),
        expected_calibration_error=float(np.abs(scored - positive).sum() / len(scores)),
        brier=float(np.mean((scores - truth) ** 2)),
    )


def _bin(count: int, scored: float, positive: float) -> ReliabilityBin:
    return ReliabilityBin(int(count), float(scored / count), float(positive / count))
