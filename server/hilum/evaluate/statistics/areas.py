"""Areas under the ROC and the precision-recall curve, and the curves. Ties count half."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Curves:
    """Points of both curves, from the highest threshold to the lowest.

    `thresholds`: a case is positive at this score and above.
    """

    thresholds: Floats
    sensitivity: Floats
    false_positive_rate: Floats
    precision: Floats


def midranks(values: Floats) -> Floats:
    """Return the rank of each value from 1 on; equal values share the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[group]
    return ranks


def auroc(truth: Truths, scores: Floats) -> float | None:
    """Return the chance that a positive case scores above a negative one; None: a class is absent.

    Mann and Whitney (Annals of Mathematical Statistics 18, 1947).
    """
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return None
    ranks = float(midranks(scores)[truth].sum())
    return (ranks - positives * (positives + 1) / 2) / (positives * negatives)


def average_precision(truth: Truths, scores: Floats) -> float | None:
    """Return the sum of precisions, weighted by the gain in recall; None: a class is absent.

    No straight lines between points: those would be too optimistic (Davis and Goadrich, 2006).
    """
    if not truth.any() or truth.all():
        return None
    found = curves(truth, scores)
    gain = np.diff(found.sensitivity, prepend=0.0)
    return float((gain * found.precision).sum())


def curves(truth: Truths, scores: Floats) -> Curves:
    """Return the points at each score that occurs. Both classes must occur."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    ends = _ends(ordered)
    hits = np.cumsum(truth[order])[ends].astype(np.float64)
    called = ends + 1.0
    positives = hits[-1]
    negatives = called[-1] - positives
    return Curves(
        thresholds=ordered[ends],
        sensitivity=hits / positives,
        false_positive_rate=(called - hits) / negatives,
        precision=hits / called,
    )


def _ends(ordered: Floats) -> NDArray[np.intp]:
    """Return the last place of each run of equal values."""
    return np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)


def youden(truth: Truths, scores: Floats) -> float | None:
    """Return the threshold with the largest sensitivity + specificity; None: a class is absent.

    Youden (Cancer 3, 1950). Of several the highest.
    """
    if not truth.any() or truth.all():
        return None
    found = curves(truth, scores)
    return float(found.thresholds[np.argmax(found.sensitivity - found.false_positive_rate)])
