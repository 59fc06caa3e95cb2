"""Weights of the resizers that models were trained with.

Each output sample is a weighted sum of input samples. Torch-free.

A resize along one axis is a matrix; a row of it is stored as the index of its first tap and its
taps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PILLOW_ONE = 1 << 22
"""1.0 in the whole numbers of Pillow's 8-bit resampler (Resample.c, PRECISION_BITS)."""

HALF = 1 << 11
"""A whole weight w is high * HALF + low with |low| <= HALF / 2.

float32 adds either, times grey levels, without error; 16 bits hold it.
"""


@dataclass(frozen=True, slots=True)
class Taps:
    """Row i of the matrix: `weights[i, t]` stands in column `first[i] + t`.

    A zero weight may stand outside of the input.
    """

    first: NDArray[np.intp]
    weights: Array

    def reach(self, length: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The first sample that each row needs, and the one after the last.

        `length` of the input. Rows of zeros need none: they reach from its end to its beginning.
        """
        is_used = self.weights != 0
        is_empty = ~is_used.any(axis=1)
        low = self.first + is_used.argmax(axis=1)
        high = self.first + is_used.shape[1] - is_used[:, ::-1].argmax(axis=1)
        return np.where(is_empty, length, low), np.where(is_empty, 0, high)


def taps(kernel: str, n_in: int, n_out: int) -> Taps:
    """The matrix of `kernel` from `n_in` to `n_out` samples."""
    return _KERNELS[kernel](n_in, n_out)


def as_pillow_integers(exact: Taps) -> Taps:
    """The weights as Pillow rounds them for 8-bit pictures: whole numbers, half away from zero."""
    return Taps(exact.first, np.trunc(exact.weights * PILLOW_ONE + np.copysign(0.5, exact.weights)))


def in_halves(whole: Array) -> tuple[Array, Array]:
    """(high, low) of whole weights, as `HALF` has them."""
    high = np.rint(whole / HALF)
    return high, whole - high * HALF


def _skimage(n_in: int, n_out: int) -> Taps:
    """skimage.transform.resize(order=1, mode="constant", anti_aliasing).

    A Gaussian of sigma (s - 1) / 2, then linear interpolation.

    Beyond the border both steps see 0, so mid grey of [-1024, 1024] bleeds in: weights of a row at
    the border sum to less than 1.
    """
    scale = n_in / n_out
    gauss = _gaussian(max(0.0, (scale - 1) / 2))
    centre = (np.arange(n_out) + 0.5) * scale - 0.5
    left = np.floor(centre).astype(np.intp)
    part = (centre - left)[:, None]
    weights = np.zeros((n_out, len(gauss) + 1))
    weights[:, :-1] += (1 - part) * gauss
    weights[:, 1:] += part * gauss
    return _without_outside(left - len(gauss) // 2, weights, n_in)


def _gaussian(sigma: float) -> Array:
    """As scipy.ndimage.gaussian_filter with truncate=4: an odd number of weights, of sum 1."""
    radius = int(4.0 * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    gauss = np.exp(-0.5 * (offsets / sigma) ** 2) if sigma else np.ones(1)
    shares: Array = gauss / gauss.sum()
    return shares


def _without_outside(first: NDArray[np.intp], weights: Array, n_in: int) -> Taps:
    columns = first[:, None] + np.arange(weights.shape[1])
    return Taps(first, np.where((columns >= 0) & (columns < n_in), weights, 0.0))


def _triangle(x: Array) -> Array:
    return np.clip(1.0 - np.abs(x), 0.0, None)


def _cubic(x: Array) -> Array:
    """Keys' cubic with a = -0.5."""
    x = np.abs(x)
    inner = ((1.5 * x) - 2.5) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


def _lanczos(x: Array) -> Array:
    """Lanczos with three lobes."""
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


def _antialiased(function: Callable[[Array], Array], support: float, n_in: int, n_out: int) -> Taps:
    """Pillow's and torch's antialiased resize.

    The function is stretched by the scale, cut at the border, and made to sum to 1.
    """
    scale = n_in / n_out
    stretch = max(scale, 1.0)
    reach = support * stretch
    centre = (np.arange(n_out) + 0.5) * scale
    first = np.clip(np.trunc(centre - reach + 0.5), 0, None).astype(np.intp)
    last = np.clip(np.trunc(centre + reach + 0.5), None, n_in).astype(np.intp)
    columns = first[:, None] + np.arange(math.ceil(reach) * 2 + 1)
    weights = function((columns - centre[:, None] + 0.5) / stretch)
    weights = np.where(columns < last[:, None], weights, 0.0)
    return Taps(first, weights / weights.sum(axis=1, keepdims=True))


def _repeated(first: NDArray[np.intp], weights: Array, n_in: int) -> Taps:
    """Taps beyond the border fall on the outermost sample, as with BORDER_REPLICATE."""
    columns = np.clip(first[:, None] + np.arange(weights.shape[1]), 0, n_in - 1)
    start = columns[:, 0]
    gathered = np.zeros_like(weights)
    rows = np.arange(len(first))[:, None]
    np.add.at(gathered, (rows, columns - start[:, None]), weights)
    return Taps(start, gathered)


def _cv2_linear(n_in: int, n_out: int) -> Taps:
    """cv2.INTER_LINEAR: two taps and no antialiasing at any scale."""
    left, part = opencv_places(n_in, n_out)
    share = part.astype(np.float64)
    return _repeated(left, np.stack([1 - share, share], axis=1), n_in)


def opencv_places(n_in: int, n_out: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the sample before each place, and the distance from it to the place.

    In float32, the scale being the inverse of an inverse.
    """
    place = ((np.arange(n_out) + 0.5) * (1 / (n_out / n_in)) - 0.5).astype(np.float32)
    left = np.floor(place)
    return left.astype(np.intp), place - left


def _cv2_area(n_in: int, n_out: int) -> Taps:
    """cv2.INTER_AREA where both axes shrink.

    The mean of the part of the input that a sample covers.
    """
    scale = n_in / n_out
    low = np.arange(n_out) * scale
    first = np.floor(low).astype(np.intp)
    columns = first[:, None] + np.arange(math.ceil(scale) + 1)
    covered = np.minimum(columns + 1, (low + scale)[:, None]) - np.maximum(columns, low[:, None])
    weights = np.where(columns < n_in, np.clip(covered, 0.0, None), 0.0)
    return Taps(first, weights / weights.sum(axis=1, keepdims=True))


def _cv2_area_enlarging(n_in: int, n_out: int) -> Taps:
    """cv2.INTER_AREA where an axis grows.

    Two taps, blended only where a sample of the output is across a border of the input.
    """
    scale = n_in / n_out
    left = np.floor(np.arange(n_out) * scale)
    part = (np.arange(n_out) + 1) - (left + 1) / scale
    part = np.where(part <= 0, 0.0, part - np.floor(part))
    return _repeated(left.astype(np.intp), np.stack([1 - part, part], axis=1), n_in)


def _torch_bicubic(n_in: int, n_out: int) -> Taps:
    """F.interpolate(mode="bicubic") without antialiasing.

    Four taps of Keys' cubic with a = -0.75; places in float32.
    """
    scale = np.float32(n_in) / np.float32(n_out)
    centre = scale * (np.arange(n_out, dtype=np.float32) + np.float32(0.5)) - np.float32(0.5)
    left = np.floor(centre)
    distance = np.abs((centre - left).astype(np.float64)[:, None] - np.arange(-1, 3))
    return _repeated(left.astype(np.intp) - 1, _sharper_cubic(distance), n_in)


def _sharper_cubic(x: Array) -> Array:
    """Keys' cubic with a = -0.75, for distances of up to 2."""
    inner = (1.25 * x - 2.25) * x * x + 1
    outer = ((-0.75 * x + 3.75) * x - 6.0) * x + 3.0
    return np.where(x <= 1, inner, outer)


def _nearest(n_in: int, n_out: int) -> Taps:
    """cv2.INTER_NEAREST and F.interpolate(mode="nearest"): the sample at floor(i * scale)."""
    first = np.minimum(np.floor(np.arange(n_out) * (n_in / n_out)).astype(np.intp), n_in - 1)
    return Taps(first, np.ones((n_out, 1)))


_KERNELS: dict[str, Callable[[int, int], Taps]] = {
    "skimage": _skimage,
    "cv2_area": _cv2_area,
    "cv2_area_enlarging": _cv2_area_enlarging,
    "cv2_linear": _cv2_linear,
    "pil_bilinear_aa": partial(_antialiased, _triangle, 1.0),
    "pil_bicubic_aa": partial(_antialiased, _cubic, 2.0),
    "pil_lanczos": partial(_antialiased, _lanczos, 3.0),
    # F.interpolate(mode="bilinear", antialias=True): the same weights in float
    "torch_aa": partial(_antialiased, _triangle, 1.0),
    "torch_bicubic": _torch_bicubic,
    "nearest": _nearest,
}
