"""From stored pixels to a PNG as a viewer would show it.

This runs in the rendering process only. It raises the fault of a file.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset, dcmread

from hilum_preprocessing import NotAnalysable, Reason, StoredValues, decode, read_file
from hilum_preprocessing.header.elements import MALFORMED, integer
from hilum_preprocessing.levels.display import display_levels

LONGEST_SIDE: Final = 1024


def paint_file(path: Path, maximum_pixels: int) -> NDArray[np.uint8]:
    """(rows, columns) uint8 of a stored image.

    Raises NotAnalysable, and OSError when the file is gone.
    """
    return display(decode(read_file(path), maximum_pixels))


def paint_document(content: bytes) -> NDArray[np.uint8]:
    """Return the pixels of our own Secondary Capture, uint8, (rows, columns) or with 3 channels.

    Raises NotAnalysable.
    """
    try:
        dataset = dcmread(io.BytesIO(content))
        pixels = dataset.pixel_array
    except MALFORMED as error:
        raise NotAnalysable(Reason.UNDECODABLE, f"not a picture ({type(error).__name__})") from None
    return _eight_bits(dataset, pixels)


def _eight_bits(dataset: Dataset, pixels: NDArray[Any]) -> NDArray[np.uint8]:
    is_grey = pixels.ndim == 2
    is_colour = pixels.ndim == 3 and pixels.shape[2] == 3
    if not (is_grey or is_colour) or integer(dataset, "BitsAllocated") != 8:
        raise NotAnalysable(Reason.UNSUPPORTED_PIXEL_FORMAT, "neither 8-bit grey nor colour")
    return pixels.astype(np.uint8)


def display(stored: StoredValues) -> NDArray[np.uint8]:
    """Stored values as a viewer shows them: by the VOI LUT where there is one, padding black."""
    return display_levels(stored, "lut", is_padding_black=True)


def shrink(picture: NDArray[np.uint8], longest_side: int) -> NDArray[np.uint8]:
    """The mean of whole blocks, so that neither side is longer and nothing aliases.

    Rests at the right and lower edge are left out.
    """
    factor = -(-max(picture.shape[:2]) // longest_side)
    if factor == 1:
        return picture
    rows, columns = (max(1, side // factor) for side in picture.shape[:2])
    cut = picture[: rows * factor, : columns * factor]
    height = min(factor, picture.shape[0])
    width = min(factor, picture.shape[1])
    blocks = cut.reshape(rows, height, columns, width, *picture.shape[2:])
    mean: NDArray[np.float32] = blocks.mean(axis=(1, 3), dtype=np.float32)
    return np.rint(mean).astype(np.uint8)


def png(picture: NDArray[np.uint8]) -> bytes:
    """PNG bytes of at most LONGEST_SIDE a side, without any metadata."""
    return bytes(
        imagecodecs.png_encode(np.ascontiguousarray(shrink(picture, LONGEST_SIDE)), level=4)
    )
