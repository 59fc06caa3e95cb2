"""The extent of the stored values of a picture, without padding, and their histogram. Torch-free.

Blocks of rows at a time: temporaries of a whole picture cost more in page faults than the counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.resize import compiled

_ROWS_AT_ONCE = 64


def extent(
    array: NDArray[Any], padding: tuple[int, int] | None, ends: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Of the pixels (rows, columns) outside of `padding`, both ends included.

    `ends`: of all pixels, where the caller knows them.

    Raises NotAnalysable when everything is padding.
    """
    smallest, largest = ends or (int(array.min()), int(array.max()))
    if padding is None:
        return smallest, largest
    low, high = padding
    if covers(padding, (smallest, largest)):
        raise NotAnalysable(Reason.CONSTANT_IMAGE, "all pixels are padding")
    if low <= smallest <= high:
        smallest = high + 1 + _least(array, high + 1, 1)
    if low <= largest <= high:
        largest = low - 1 - _least(array, low - 1, -1)
    return smallest, largest


def covers(padding: tuple[int, int], ends: tuple[int, int]) -> bool:
    """Whether all values between these ends are padding."""
    return padding[0] <= ends[0] and ends[1] <= padding[1]


def _least(array: NDArray[Any], origin: int, sign: int) -> int:
    """Return the distance of the nearest pixel from `origin` in the direction of `sign`.

    Pixels on the other side wrap around to the far end.
    """
    unsigned = np.dtype(f"u{array.itemsize}")
    words = array.view(unsigned)
    start = unsigned.type(origin % (1 << (8 * unsigned.itemsize)))
    return min(
        int((block - start if sign > 0 else start - block).min()) for block in _blocks(words)
    )


def counts(array: NDArray[Any], first: int, length: int) -> NDArray[np.int64]:
    """Return (length,) the number of pixels of each stored value from `first` on.

    No pixel may have another value.
    """
    if (by_bits := compiled.counts(array)) is not None:
        return _by_value(by_bits, array.dtype, first, length)
    found = np.zeros(length, np.int64)
    for block in _blocks(array):
        found += np.bincount(block.ravel().astype(np.intp) - first, minlength=length)
    return found


def _by_value(
    by_bits: NDArray[np.int64], dtype: np.dtype[Any], first: int, length: int
) -> NDArray[np.int64]:
    values = np.arange(first, min(first + length, int(np.iinfo(dtype).max) + 1))
    found = np.zeros(length, np.int64)
    found[: len(values)] = by_bits[values.astype(dtype).view(f"u{dtype.itemsize}")]
    return found


def _blocks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (array[row : row + _ROWS_AT_ONCE] for row in range(0, len(array), _ROWS_AT_ONCE))
