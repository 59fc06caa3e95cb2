"""Pixels that contradict Pixel Representation, or the order of their bytes. Torch-free.

Read by the header they would be another picture: below zero black turns into white, and bytes in
the other order are noise.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.codecs.bit_edges import bit_edges
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.pixel_header import PixelHeader

# Pairs that decide about a sign. Signed words without extension are valid, so the check must be
# short.
_ENOUGH: Final = 5000
_SAMPLED_ROWS: Final = 64
_LEAST_LEAPS: Final = 1e-3  # of pairs; burned-in letters have fewer
_LEAST_UPPER: Final = 0.02  # of pixels that would be below zero
_LEAST_NOISE: Final = 32  # of 64, the mean step between bytes of noise
_LIKELIER: Final = 2
_LEAST_DEVIATION: Final = 1 / 64  # of half the range: 12 bits in words of 16 have some 30th


def require_sign(words: NDArray[Any], values: NDArray[Any], header: PixelHeader) -> None:
    """Raises NotAnalysable (depth_contradicted) where only the signed values wrap around.

    `values` are the two's complement of `words`. Then the header gives a picture without a sign
    Pixel Representation 1, or the sign is another bit.
    """
    if (
        header.is_signed
        and header.is_judged
        and bit_edges(words, values, header, _ENOUGH).are_of_the_picture
    ):
        raise NotAnalysable(
            Reason.DEPTH_CONTRADICTED,
            "Pixel Representation 1, and the highest stored bit is no sign",
        )


def require_no_sign(values: NDArray[Any], header: PixelHeader) -> None:
    """Raises NotAnalysable (depth_contradicted) where only the unsigned values wrap around.

    Then the header gives a picture with a sign Pixel Representation 0. A few rows exclude that for
    most pictures.
    """
    if header.is_signed or not header.is_judged or values.ndim > 2 or not _may_wrap(values, header):
        return
    half = 1 << header.bits_stored - 1
    signed = (_exact(values) ^ half) - half
    if bit_edges(signed, values, header, _ENOUGH).are_of_the_picture:
        raise NotAnalysable(
            Reason.DEPTH_CONTRADICTED, "Pixel Representation 0, and the pixels go on below zero"
        )


def require_byte_order(words: NDArray[Any]) -> None:
    """Raises NotAnalysable (depth_contradicted) for words of 16 bits with swapped bytes.

    Their high bytes are noise, and the low ones a picture.
    """
    if words.itemsize != 2 or words.ndim > 2:
        return
    rows = _sampled(words)
    high, low = (_mean_step(part) for part in (rows >> 8, rows & 0xFF))
    if low and high > max(_LEAST_NOISE, _LIKELIER * low):
        raise NotAnalysable(
            Reason.DEPTH_CONTRADICTED,
            "the bytes of each pixel are in the other order than the Transfer Syntax says",
        )


def _may_wrap(values: NDArray[Any], header: PixelHeader) -> bool:
    """Whether many pixels are in the upper half, and neighbours leap oftener than at edges.

    A leap is across more than half the range. Black and white with little between them is no
    picture with a sign.
    """
    rows = _sampled(values)
    half = 1 << header.bits_stored - 1
    if np.count_nonzero(rows >= half) < _LEAST_UPPER * rows.size:
        return False
    if np.count_nonzero(np.abs(np.diff(rows, axis=1)) > half) < max(1.0, _LEAST_LEAPS * rows.size):
        return False
    return float(((rows ^ half) - half).std()) >= _LEAST_DEVIATION * half


def _sampled(values: NDArray[Any]) -> NDArray[Any]:
    return _exact(values[:: max(1, len(values) // _SAMPLED_ROWS)])


def _exact(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64 if values.itemsize > 2 else np.int32)


def _mean_step(part: NDArray[Any]) -> float:
    """Of bytes as a circle, on which 255 is beside 0: so are the high bytes of -1 and 0."""
    steps = np.diff(part, axis=1) & 0xFF
    return float(np.minimum(steps, 256 - steps).mean()) if steps.size else 0.0
