"""cv2.resize(INTER_LINEAR) of whole grey levels to the bit, in torch.

OpenCV computes it in whole numbers and truncates twice.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hilum_preprocessing.resize.kernels import opencv_places
from hilum_preprocessing.spec.operations import Resize

Indices = NDArray[np.intp]
_ONE = 1 << 11
"""imgproc/resize.cpp, INTER_RESIZE_COEF_SCALE: what a weight of 1 is."""


def linear_uint8(image: Tensor, op: Resize) -> Tensor:
    """(H, W) uint8 to (op.height, op.width) uint8 on the same device."""
    levels = image.to(torch.int32)
    (above, over), (below, under) = _on(image.device, *_rows(image.shape[0], op.height))
    upper, lower = (_across(levels[rows], op.width) for rows in (above, below))
    # VResizeLinear: each product loses its 16 low bits by itself before the two are added.
    sums = (over[:, None] * (upper >> 4) >> 16) + (under[:, None] * (lower >> 4) >> 16)
    return ((sums + 2) >> 2).clamp_(0, 255).to(torch.uint8)


def _across(levels: Tensor, width: int) -> Tensor:
    (left, over), (right, under) = _on(levels.device, *_columns(levels.shape[1], width))
    return levels[:, left] * over + levels[:, right] * under


def _on(device: torch.device, *taps: tuple[Indices, Indices]) -> list[tuple[Tensor, Tensor]]:
    """Pairs of indices (int64) and weights (int32)."""
    return [
        (torch.from_numpy(index).to(device), torch.from_numpy(weight).to(device, torch.int32))
        for index, weight in taps
    ]


def _rows(n_in: int, n_out: int) -> tuple[tuple[Indices, Indices], tuple[Indices, Indices]]:
    """Return the two taps of each row; beyond the border both are the outermost row.

    Their weights stay the same there.
    """
    left, part = opencv_places(n_in, n_out)
    first, second = (np.clip(left + tap, 0, n_in - 1) for tap in (0, 1))
    return (first, _whole(1 - part)), (second, _whole(part))


def _columns(n_in: int, n_out: int) -> tuple[tuple[Indices, Indices], tuple[Indices, Indices]]:
    """Beyond the border the outermost column has the whole weight."""
    left, part = opencv_places(n_in, n_out)
    part[(left < 0) | (left >= n_in - 1)] = 0
    first = np.clip(left, 0, n_in - 1)
    return (first, _whole(1 - part)), (np.minimum(first + 1, n_in - 1), _whole(part))


def _whole(weights: NDArray[np.float32]) -> Indices:
    whole: Indices = np.rint(weights * np.float32(_ONE)).astype(np.intp)
    return whole
