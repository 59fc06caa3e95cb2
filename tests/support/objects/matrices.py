"""The matrix of a resize as a whole, which no code of ours makes."""

from __future__ import annotations

import numpy as np

from hilum_preprocessing.resize.kernels import Taps


def dense(exact: Taps, n_in: int) -> np.ndarray:
    """(rows, n_in)."""
    matrix = np.zeros((len(exact.first), n_in))
    row, tap = np.nonzero(exact.weights)
    matrix[row, exact.first[row] + tap] = exact.weights[row, tap]
    return matrix
