"""PNG files: gray of 8 or 16 bits (ISO/IEC 15948). Torch-free.

gAMA, iCCP, sRGB and sBIT change no value: the training of no recipe read them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import imagecodecs

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.pictures.exif import require_upright
from hilum_preprocessing.pictures.pixels import PicturePixels, gray, require_size

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEAD: Final = struct.Struct(">I4s")
_CHECKSUM_BYTES: Final = 4
_IHDR: Final = struct.Struct(">IIBBBBB")
_PALETTE: Final = 3
_MOST_CHUNKS: Final = 100_000  # in practice 8 KiB each


@dataclass(frozen=True, slots=True)
class _PngHeader:
    """IHDR (11.2.2)."""

    columns: int
    rows: int
    depth: int
    colour_type: int


def read_png(data: bytes, maximum_pixels: int) -> PicturePixels:
    """Raises NotAnalysable: colour, transparency, animation, other depths, damage, a cut file."""
    header = _header(data)
    require_size(header.rows, header.columns, maximum_pixels)
    _require_depth(header)
    try:
        array = imagecodecs.png_decode(data)
    except (imagecodecs.PngError, ValueError):
        raise NotAnalysable(Reason.UNDECODABLE, "the PNG decoder refused the file") from None
    if array.shape[:2] != (header.rows, header.columns):
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, "the PNG file decoded to another size")
    pixels = gray(array)
    return PicturePixels(
        header.rows, header.columns, 8 * pixels.itemsize, is_lossy=False, array=pixels
    )


def _header(data: bytes) -> _PngHeader:
    """The header of a file whose chunks are all there, up to IEND."""
    header: _PngHeader | None = None
    name = b""
    for number, (name, body) in enumerate(_chunks(data)):
        if number == 0 and name == b"IHDR" and len(body) == _IHDR.size:
            columns, rows, depth, colour_type, *_ = _IHDR.unpack(body)
            header = _PngHeader(columns, rows, depth, colour_type)
        _require_one_upright(name, body)
    if header is None:
        raise NotAnalysable(Reason.UNDECODABLE, "no PNG header")
    if name != b"IEND":
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, "the PNG file ends before its last chunk")
    return header


def _require_one_upright(name: bytes, body: memoryview) -> None:
    if name == b"acTL":
        raise NotAnalysable(Reason.MULTI_FRAME, "an animated PNG file")
    if name == b"eXIf":
        require_upright(bytes(body))


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Name and body of each chunk that is whole, at most to IEND (5.3)."""
    view = memoryview(data)
    position = len(SIGNATURE)
    for _ in range(_MOST_CHUNKS):
        if position + _HEAD.size > len(view):
            return
        length, name = _HEAD.unpack_from(view, position)
        start = position + _HEAD.size
        position = start + length + _CHECKSUM_BYTES
        if position > len(view):
            return
        yield name, view[start : start + length]
        if name == b"IEND":
            return
    raise NotAnalysable(Reason.UNDECODABLE, f"more than {_MOST_CHUNKS} chunks")


def _require_depth(header: _PngHeader) -> None:
    if header.depth not in (8, 16):
        kind = "palette" if header.colour_type == _PALETTE else "gray"
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            f"{kind} of {header.depth} bits; a radiograph has 8 or 16",
        )
