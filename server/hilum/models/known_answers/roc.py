"""Area under the ROC curve.

It is the rate at which a positive case scores higher than a negative one (Mann and Whitney 1947).
Ties count half.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def auc(scores: Array, truth: Array) -> float | None:
    """(n,) scores and (n,) 1, 0 or NaN (unknown) → 0 to 1; None where a class has no case."""
    positive = scores[truth == 1]
    negative = np.sort(scores[truth == 0])
    if not len(positive) or not len(negative):
        return None
    below = np.searchsorted(negative, positive, side="left") + np.searchsorted(
        negative, positive, side="right"
    )
    return float(below.mean() / (2 * len(negative)))
