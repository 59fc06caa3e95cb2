"""The Gaussian blur of training, in torch.

The one operation on a picture that is neither crop, pad nor resize.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from hilum_preprocessing.spec.operations import Blur

# smooth.dispatch.cpp, small_gaussian_tab: the weights for sigma 0. Exact binary fractions.
_WEIGHTS: Final[Mapping[int, tuple[float, ...]]] = {
    3: (0.25, 0.5, 0.25),
    5: (0.0625, 0.25, 0.375, 0.25, 0.0625),
    7: (0.03125, 0.109375, 0.21875, 0.28125, 0.21875, 0.109375, 0.03125),
}


def blurred(image: Tensor, op: Blur) -> Tensor:
    """Return (H, W) uint8 or float32, blurred as by cv2.GaussianBlur(image, (size, size), 0).

    The border is mirrored. Whole grey levels: sums of a level and a 16-bit fraction are exact in
    float32, and are rounded once, half up, as OpenCV does.
    """
    weights = _WEIGHTS[op.size]
    reach = op.size // 2
    padded = image.to(torch.float32)[_mirrored(image.shape[0], reach, image.device)][
        :, _mirrored(image.shape[1], reach, image.device)
    ]
    smooth = _weighted(_weighted(padded, weights, 0), weights, 1)
    return smooth.add_(0.5).floor_().to(torch.uint8) if image.dtype == torch.uint8 else smooth


def _mirrored(length: int, reach: int, device: torch.device) -> Tensor:
    """Indices of BORDER_REFLECT_101.

    The outermost sample is not repeated; a picture of one sample is.
    """
    places = torch.arange(-reach, length + reach, device=device)
    period = max(1, 2 * (length - 1))
    folded = places.remainder(period)
    return torch.minimum(folded, period - folded) if length > 1 else torch.zeros_like(places)


def _weighted(image: Tensor, weights: tuple[float, ...], axis: int) -> Tensor:
    length = image.shape[axis] - len(weights) + 1
    total = image.narrow(axis, 0, length) * weights[0]
    for tap, weight in enumerate(weights[1:], 1):
        total = total.add_(image.narrow(axis, tap, length), alpha=weight)
    return total
