"""RLE Lossless (PS3.5 annex G). Torch-free; the decoder holds no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import imagecodecs
import numpy as np

from hilum_preprocessing.codecs.bits import Decoded, stored_bits
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.encapsulation import Codestream
from hilum_preprocessing.header.pixel_header import PixelHeader

# It takes any buffer, although its annotation names bytes.
_RLE: Final[Callable[..., Any]] = imagecodecs.dicomrle_decode
_HEAD_BYTES: Final = 64
_LONGEST_RUN: Final = 128  # PS3.5 G.3.1: two bytes code 128 at most


def decode_rle(codestream: Codestream, header: PixelHeader) -> Decoded:
    """Byte planes, the most significant first, of each sample in turn. Raises NotAnalysable."""
    planes = _decompressed(codestream, header)
    container = np.frombuffer(planes, f"<u{header.dtype.itemsize}")
    by_sample = container.reshape(header.samples, header.rows, header.columns)
    return stored_bits(
        by_sample[0] if header.samples == 1 else by_sample.transpose(1, 2, 0), header
    )


def _decompressed(codestream: Codestream, header: PixelHeader) -> Any:  # noqa: ANN401 - the decoder's own
    bounds = _checked_bounds(codestream, header)
    try:
        planes = _planes(codestream, header)
    except (imagecodecs.DicomrleError, ValueError):
        planes = _planes_of_cut_segments(codestream, bounds, header)
    if len(planes) != header.size_bytes:
        raise NotAnalysable(
            Reason.TRUNCATED_PIXEL_DATA,
            f"{len(planes)} of {header.size_bytes} bytes after decompression",
        )
    return planes


def _planes(codestream: Codestream, header: PixelHeader) -> Any:  # noqa: ANN401 - the decoder's own
    """Into memory of the expected length: 128 times its own length is possible otherwise."""
    return _RLE(
        codestream, header.dtype.newbyteorder("<"), out=np.empty(header.size_bytes, np.uint8)
    )


def _planes_of_cut_segments(
    codestream: Codestream, bounds: Sequence[int], header: PixelHeader
) -> Any:  # noqa: ANN401 - the decoder's own
    """The same of segments that go on behind their plane by less than a run, a row and a column.

    Padding that was coded, too.
    """
    allowed = min(_LONGEST_RUN, header.rows, header.columns) - 1
    segments = [
        _cut(bytes(codestream[start:stop]), header.pixels, allowed)
        for start, stop in pairwise(bounds)
    ]
    try:
        return _planes(_head(segments) + b"".join(segments), header)
    except (imagecodecs.DicomrleError, ValueError):
        raise _refused() from None


def _head(segments: Sequence[bytes]) -> bytes:
    """G.5: the number of segments and where each begins, in 64 bytes."""
    starts = accumulate((len(segment) for segment in segments[:-1]), initial=_HEAD_BYTES)
    return np.array([len(segments), *starts], "<u4").tobytes().ljust(_HEAD_BYTES, b"\0")


def _cut(segment: bytes, length: int, allowed: int) -> bytes:
    """The segment up to the run that makes it `length` bytes, and that run shortened to it.

    PS3.5 G.3.1. Raises NotAnalysable where there are not so many bytes, or more than `allowed`
    behind them.
    """
    kept = segment
    made = 0
    position = 0
    while position + 1 < len(segment):
        code = segment[position]
        count, size = (
            (code + 1, code + 2)
            if code < _LONGEST_RUN
            else (257 - code, 2)
            if code > _LONGEST_RUN
            else (0, 1)
        )
        if count and position + size > len(segment):
            break  # less than a run is left: padding of a segment of odd length
        if made < length <= made + count:
            kept = segment[:position] + _run(segment[position : position + size], length - made)
        made = made + count
        position = position + size
    if not length <= made <= length + allowed:
        raise NotAnalysable(
            Reason.TRUNCATED_PIXEL_DATA if made < length else Reason.EXCESS_PIXEL_DATA,
            f"an RLE segment of {made} bytes after decompression, {length} expected",
        )
    return kept


def _run(run: bytes, count: int) -> bytes:
    """The first bytes of a run; literal, or one byte repeated."""
    if run[0] < _LONGEST_RUN:
        return bytes([count - 1]) + run[1 : count + 1]
    return bytes([257 - count, run[1]]) if count > 1 else bytes([0, run[1]])


def _refused() -> NotAnalysable:
    return NotAnalysable(Reason.UNDECODABLE, "the RLE decoder refused a segment")


def _checked_bounds(codestream: Codestream, header: PixelHeader) -> list[int]:
    """Where each segment begins and the last one ends.

    Each is as long as one plane once decompressed, and cannot be from less.
    """
    bounds = [*_segment_starts(codestream, header), len(codestream)]
    if bounds[0] != _HEAD_BYTES or any(start > stop for start, stop in pairwise(bounds)):
        raise NotAnalysable(Reason.UNDECODABLE, "RLE segments that overlap or lie outside")
    if any((stop - start) * _LONGEST_RUN < header.pixels * 2 for start, stop in pairwise(bounds)):
        raise NotAnalysable(
            Reason.TRUNCATED_PIXEL_DATA, "an RLE segment that is too short for a plane"
        )
    return bounds


def _segment_starts(codestream: Codestream, header: PixelHeader) -> list[int]:
    """G.5: the number of segments, one for each byte of a pixel, and where each begins."""
    if len(codestream) < _HEAD_BYTES:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, f"RLE header of {len(codestream)} bytes")
    count, *starts = np.frombuffer(codestream[:_HEAD_BYTES], "<u4").tolist()
    expected = header.samples * header.bits_allocated // 8
    if count != expected:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, f"{count} RLE segments, header {expected}")
    chosen: list[int] = starts[:count]
    return chosen
