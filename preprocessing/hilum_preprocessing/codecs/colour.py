"""Colour to RGB, and RGB or a palette to one grey channel. Torch-free.

For specifications that take such objects.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.pixels.processing import convert_color_space

from hilum_preprocessing.codecs.bits import Decoded
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import element, numbers
from hilum_preprocessing.header.pixel_header import PixelHeader

Grey = Literal["luma", "first_channel"]

_WORDS: Final = 1 << 16
_CHANNELS: Final = ("Red", "Green", "Blue")
# ITU-R BT.601 in 1/65536, as Pillow's convert("L") has it: with rounding, so that white stays
# white. Their sum is 65536, so 16 bits of white and the rounding still fit into 32.
_LUMA: Final = np.array([19595, 38470, 7471], np.uint32)


def to_rgb(decoded: Decoded, header: PixelHeader) -> NDArray[Any]:
    """(rows, columns, 3) RGB from luminance and chrominance, or the same where it is RGB.

    PS3.3 C.7.6.3.1.2.
    """
    if decoded.is_rgb or not header.photometric.startswith("YBR_FULL"):
        return decoded.array
    if header.bits_allocated != 8:
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT, f"YBR_FULL with {header.bits_allocated} bits"
        )
    return np.asarray(convert_color_space(decoded.array, "YBR_FULL", "RGB"))


def to_grey(
    dataset: Dataset, decoded: Decoded, header: PixelHeader, grey: Grey
) -> tuple[NDArray[Any], int]:
    """(rows, columns) of the header's type, and how many bits of it count.

    Raises NotAnalysable: a palette that cannot be read.
    """
    if header.is_signed:
        raise NotAnalysable(Reason.UNSUPPORTED_PIXEL_FORMAT, "signed colour samples")
    rgb, bits = (
        _through_palette(dataset, decoded.array)
        if header.is_palette
        else (to_rgb(decoded, header), header.bits_stored)
    )
    if grey == "first_channel":
        return np.ascontiguousarray(rgb[..., 0]), bits
    return _luma(rgb), bits


def _luma(rgb: NDArray[Any]) -> NDArray[Any]:
    total = np.full(rgb.shape[:-1], 0x8000, np.uint32)
    for channel, weight in enumerate(_LUMA):
        total += np.multiply(rgb[..., channel], weight, dtype=np.uint32)
    return (total >> 16).astype(rgb.dtype)


def _through_palette(dataset: Dataset, indices: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """PS3.3 C.7.6.3.1.5 and C.7.6.3.1.6; entries of 8 or 16 bits."""
    tables = [_table(dataset, f"{channel}PaletteColorLookupTable") for channel in _CHANNELS]
    bits = tables[0][2]
    if any(table[2] != bits for table in tables):
        raise NotAnalysable(Reason.CORRUPT_HEADER, "palettes of different depths")
    mapped = [
        entries[np.clip(indices.astype(np.int64) - first, 0, len(entries) - 1)]
        for first, entries, _ in tables
    ]
    return np.stack(mapped, axis=-1), bits


def _table(dataset: Dataset, keyword: str) -> tuple[int, NDArray[Any], int]:
    """(first mapped index, entries, bits of an entry)."""
    count, first, bits = _descriptor(dataset, keyword)
    data = element(dataset, f"{keyword}Data")
    if not isinstance(data, bytes):
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is missing, or in segments")
    if bits not in (8, 16) or len(data) < count * bits // 8 or abs(first) >= _WORDS:
        raise NotAnalysable(
            Reason.CORRUPT_HEADER,
            f"{keyword} has {len(data)} bytes for {count} entries of {bits} bits",
        )
    return first, _entries(data, count, bits), bits


def _entries(data: bytes, count: int, bits: int) -> NDArray[Any]:
    """Entries of 8 bits may be stored as 8 in 16 (C.7.6.3.1.6)."""
    is_wide = bits == 16 or len(data) >= 2 * count
    entries = np.frombuffer(data, "<u2" if is_wide else "u1", count)
    return entries.astype("u2" if bits == 16 else "u1")


def _descriptor(dataset: Dataset, keyword: str) -> tuple[int, int, int]:
    """(number of entries, first mapped index, bits of an entry).

    0 entries mean 65536; read as SS, large counts are negative.
    """
    descriptor = numbers(dataset, f"{keyword}Descriptor")
    if len(descriptor) != 3:
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is missing, or in segments")
    count, first, bits = (int(value) for value in descriptor)
    return count % _WORDS or _WORDS, first, bits
