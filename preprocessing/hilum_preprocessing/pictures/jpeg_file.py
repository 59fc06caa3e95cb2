"""JPEG files of 8 bits: baseline, extended sequential and progressive. Torch-free."""

from __future__ import annotations

from typing import Final

from hilum_preprocessing.codecs.jpeg import decode_baseline
from hilum_preprocessing.codecs.markers import (
    BASELINE,
    EXTENDED,
    PROGRESSIVE,
    JpegHeader,
    read_header,
    segments,
)
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.pixel_header import PixelHeader
from hilum_preprocessing.pictures.exif import require_upright
from hilum_preprocessing.pictures.pixels import PicturePixels, gray, require_size

START: Final = b"\xff\xd8\xff"
_HUFFMAN_DCT: Final = frozenset({BASELINE, EXTENDED, PROGRESSIVE})
_APP1: Final = 0xE1
_EXIF: Final = b"Exif\0\0"
_PHOTOMETRIC: Final = {1: "MONOCHROME2", 3: "YBR_FULL_422"}


def read_jpeg(data: bytes, maximum_pixels: int) -> PicturePixels:
    """Raises NotAnalysable: colour, CMYK, other processes and depths, damage, a cut file.

    JPEG Baseline of one component is not decoded here.
    """
    found = read_header(data)
    _require_process(found)
    require_size(found.rows, found.columns, maximum_pixels)
    _require_upright(data)
    if found.marker == BASELINE and found.components == 1:
        return PicturePixels(found.rows, found.columns, 8, is_lossy=True, codestream=data)
    array = gray(decode_baseline(data, _pixel_header(found)).array)
    return PicturePixels(found.rows, found.columns, 8, is_lossy=True, array=array)


def _require_upright(data: bytes) -> None:
    for marker, start, stop in segments(data):
        if marker == _APP1 and data[start + 2 : stop].startswith(_EXIF):
            require_upright(data[start + 2 + len(_EXIF) : stop])


def _require_process(found: JpegHeader) -> None:
    if found.marker not in _HUFFMAN_DCT or found.precision != 8:
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            f"a JPEG file of process SOF{found.marker & 0x0F} with {found.precision} bits; baseline"
            " and progressive ones of 8 bits are read",
        )
    if found.components not in _PHOTOMETRIC:
        raise NotAnalysable(
            Reason.NOT_MONOCHROME,
            f"a JPEG file of {found.components} components, such as CMYK; gray ones are read",
        )


def _pixel_header(found: JpegHeader) -> PixelHeader:
    return PixelHeader(
        found.rows,
        found.columns,
        bits_allocated=8,
        bits_stored=8,
        high_bit=7,
        is_signed=False,
        photometric=_PHOTOMETRIC[found.components],
        samples=found.components,
    )
