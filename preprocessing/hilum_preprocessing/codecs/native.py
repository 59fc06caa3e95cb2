"""Uncompressed Pixel Data: views of the data set's bytes (PS3.5 8.1, A.1 to A.3). Torch-free."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from hilum_preprocessing.codecs.bits import Decoded, stored_bits
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import element, tag_of
from hilum_preprocessing.header.pixel_header import PixelHeader

_SECTOR_BYTES: Final = 2048  # of an optical disc


def native_frame(
    dataset: Dataset, header: PixelHeader, frame: int, *, is_big_endian: bool
) -> Decoded:
    """One frame.

    Data that is shorter than the header says is refused, and longer data unless the rest is
    padding.

    Nothing is copied where words are clean and little endian.
    """
    data = element(dataset, "PixelData")
    if dataset[tag_of("PixelData")].is_undefined_length:
        # PS3.5 A.1 and A.2: Pixel Data of an uncompressed syntax has a defined length.
        raise NotAnalysable(
            Reason.UNDECODABLE, "encapsulated Pixel Data in an uncompressed Transfer Syntax"
        )
    _require_length(data, header)
    if header.bits_allocated == 1:
        return Decoded(_unpacked(data, header, frame))
    words = _words(dataset, data, header, frame, is_big_endian=is_big_endian)
    return stored_bits(_arranged(words, header), header)


def _require_length(data: bytes, header: PixelHeader) -> None:
    """Raises NotAnalysable (truncated_pixel_data, excess_pixel_data)."""
    needed = _needed_bytes(header)
    if len(data) < needed:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, f"{len(data)} of {needed} bytes")
    if len(data) > needed + needed % 2 and not _is_padding(data, needed, header):
        raise NotAnalysable(Reason.EXCESS_PIXEL_DATA, f"{len(data)} bytes, {needed} expected")


def _needed_bytes(header: PixelHeader) -> int:
    """Of all frames; those of single bits follow each other without padding (PS3.5 8.1.1)."""
    if header.bits_allocated == 1:
        return (header.pixels * header.samples * header.frames + 7) // 8
    return header.size_bytes * header.frames


def _is_padding(data: bytes, needed: int, header: PixelHeader) -> bool:
    """Whether the bytes behind the pixels are less than a row and a column, or zeros.

    Not padding, even if zero, is as much as a whole frame: several frames, deeper pixels, more
    samples, rows or columns. Nor are zeros of whole columns beyond a sector: the header may have a
    column too few, which shears the picture, and the last row may be black.
    """
    rest = len(data) - needed
    row, column = (max(1, header.size_bytes // length) for length in (header.rows, header.columns))
    if rest < min(row, column):
        return True
    is_whole_columns = rest >= _SECTOR_BYTES and rest % column == 0
    return (
        rest % header.size_bytes != 0
        and not is_whole_columns
        and not np.frombuffer(data, np.uint8, offset=needed).any()
    )


def _words(
    dataset: Dataset, data: bytes, header: PixelHeader, frame: int, *, is_big_endian: bool
) -> NDArray[Any]:
    size = header.bits_allocated // 8
    if is_big_endian and size == 1 and dataset["PixelData"].VR == "OW":
        return _swapped(data)[frame * header.size_bytes :][: header.size_bytes]
    order = ">" if is_big_endian else "<"
    words = np.frombuffer(
        data, f"{order}u{size}", header.size_bytes // size, frame * header.size_bytes
    )
    return words.astype(f"<u{size}") if is_big_endian else words


def _swapped(data: bytes) -> NDArray[np.uint8]:
    """PS3.5 8.1.2: two pixels share a word, and the word's bytes are swapped."""
    return np.frombuffer(data, ">u2", len(data) // 2).astype("<u2").view("u1")


def _arranged(words: NDArray[Any], header: PixelHeader) -> NDArray[Any]:
    """(rows, columns) or (rows, columns, samples), for either order of planes."""
    if header.photometric == "YBR_FULL_422":
        return _upsampled(words.reshape(-1, 4)).reshape(header.shape)
    if header.samples > 1 and header.is_planar:
        return words.reshape(header.samples, header.rows, header.columns).transpose(1, 2, 0)
    return words.reshape(header.shape)


def _upsampled(pairs: NDArray[Any]) -> NDArray[Any]:
    """PS3.3 C.7.6.3.1.2: Y1 Y2 Cb Cr stand for two pixels that share their chrominance."""
    return pairs[:, [0, 2, 3, 1, 2, 3]].reshape(-1, 3)


def _unpacked(data: bytes, header: PixelHeader, frame: int) -> NDArray[np.uint8]:
    """PS3.5 8.1.1: the first pixel is the least significant bit.

    Frames are not padded to whole bytes.
    """
    first = frame * header.pixels
    packed = np.frombuffer(data, np.uint8)[first // 8 : (first + header.pixels + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[first % 8 :][: header.pixels].reshape(
        header.shape
    )
