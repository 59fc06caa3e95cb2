"""PNG and JPEG files around given pixels."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hilum_preprocessing.pictures.png import SIGNATURE


def png(array: NDArray[Any], mode: str | None = None, **options: Any) -> bytes:
    """A PNG file of (rows, columns) uint8 or uint16, or (rows, columns, channels) uint8.

    `mode`: as Pillow names it; it is converted to.
    """
    image = Image.fromarray(array)
    return _saved(image if mode is None else image.convert(mode), "PNG", **options)


def palette_png(indices: NDArray[np.uint8], palette: list[int]) -> bytes:
    """A PNG file of indices (rows, columns) into 256 colours, red, green and blue in turns."""
    image = Image.fromarray(indices)
    image.putpalette(palette)
    return _saved(image, "PNG")


def jpeg_file(array: NDArray[np.uint8], mode: str | None = None, **options: Any) -> bytes:
    """A JPEG file of quality 95, as the data sets have."""
    image = Image.fromarray(array)
    return _saved(image if mode is None else image.convert(mode), "JPEG", quality=95, **options)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def png_of_chunks(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG file of these chunks, each a name and a body."""
    return SIGNATURE + b"".join(chunk(name, body) for name, body in chunks)


def chunk(name: bytes, body: bytes) -> bytes:
    """Length, name, body and checksum."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def ihdr(rows: int, columns: int, depth: int = 8, colour_type: int = 0) -> tuple[bytes, bytes]:
    """The header chunk."""
    return b"IHDR", struct.pack(">IIBBBBB", columns, rows, depth, colour_type, 0, 0, 0)


def turned(orientation: int) -> Image.Exif:
    """Exif metadata of one orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif
