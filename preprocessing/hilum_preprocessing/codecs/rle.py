"""RLE Lossless (PS3.5 annex G). Torch-free; the decoder holds no lock."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import imagecodecs
import numpy as np

from hilum_preprocessing.bits import Decoded, stored_bits
from hilum_preprocessing.encapsulation import Codestream
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header import PixelHeader

_RLE: Final[Callable[..., Any]] = imagecodecs.dicomrle_decode  # takes any buffer, whatever its annotation says
_HEAD_BYTES: Final = 64
_LONGEST_RUN: Final = 128  # PS3.5 G.3.1: two bytes stand for 128 at most


def decode_rle(codestream: Codestream, header: PixelHeader) -> Decoded:
    """Byte planes, the most significant first, of each sample in turn. Raises NotAnalysable."""
    _check_head(codestream, header)
    try:
        # Into memory of the expected length: 128 times its own length is possible otherwise.
        planes = _RLE(codestream, header.dtype.newbyteorder("<"), out=np.empty(header.size_bytes, np.uint8))
    except (imagecodecs.DicomrleError, ValueError):
        raise NotAnalysable(Reason.UNDECODABLE, "the RLE decoder refused a segment") from None
    if len(planes) != header.size_bytes:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, f"{len(planes)} of {header.size_bytes} bytes after decompression")
    container = np.frombuffer(planes, f"<u{header.dtype.itemsize}").reshape(header.samples, header.rows, header.columns)
    return stored_bits(container[0] if header.samples == 1 else container.transpose(1, 2, 0), header)


def _check_head(codestream: Codestream, header: PixelHeader) -> None:
    """G.5: the number of segments and where each begins. Each is as long as one plane once decompressed, and cannot be from less."""
    if len(codestream) < _HEAD_BYTES:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, f"RLE header of {len(codestream)} bytes")
    count, *starts = np.frombuffer(codestream[:_HEAD_BYTES], "<u4").tolist()
    expected = header.samples * header.bits_allocated // 8
    if count != expected:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, f"{count} RLE segments, header {expected}")
    bounds = [*starts[:count], len(codestream)]
    if bounds[0] != _HEAD_BYTES or any(start > stop for start, stop in pairwise(bounds)):
        raise NotAnalysable(Reason.UNDECODABLE, "RLE segments that overlap or lie outside")
    if any((stop - start) * _LONGEST_RUN < header.pixels * 2 for start, stop in pairwise(bounds)):
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, "an RLE segment that is too short for a plane")
