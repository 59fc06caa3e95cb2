"""JPEG Baseline (Process 1) of one frame. Torch-free.

libjpeg fills what is missing with grey and reports success: a file cut to 60 % decodes without an error. So the end marker, the
frame header and the data set's header are compared before a pixel is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header import PixelHeader

_START_OF_IMAGE = b"\xff\xd8"
_END_OF_IMAGE = b"\xff\xd9"
_START_OF_SCAN = 0xDA
# ISO/IEC 10918-1 Table B.1: C0 to CF are frame headers, except DHT (C4), JPG (C8) and DAC (CC).
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Baseline, and the two other 8-bit Huffman processes that writers were seen to label as baseline; a decoder needs no label.
_EIGHT_BIT_HUFFMAN = {0xC0, 0xC1, 0xC2}


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """ISO/IEC 10918-1 B.2.2."""

    marker: int
    precision: int
    rows: int
    columns: int
    components: int


def decode_baseline(codestream: bytes, header: PixelHeader) -> NDArray[Any]:
    """(rows, columns) uint8. Raises NotAnalysable: truncated, mismatching the header, or refused by the decoder."""
    if not codestream.startswith(_START_OF_IMAGE):
        raise NotAnalysable(Reason.UNDECODABLE, "no JPEG start marker")
    # PS3.5 A.4: a fragment of odd length is padded with one 00; some writers pad with more.
    if not codestream.rstrip(b"\x00").endswith(_END_OF_IMAGE):
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, "no JPEG end marker")
    _compare(frame_header(codestream), header)
    try:
        array = imagecodecs.jpeg8_decode(codestream)
    except imagecodecs.Jpeg8Error:
        raise NotAnalysable(Reason.UNDECODABLE, "the JPEG decoder refused the codestream") from None
    if array.shape != (header.rows, header.columns) or array.dtype != np.uint8:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, f"decoded to {array.shape} {array.dtype}")
    return array


def frame_header(codestream: bytes) -> FrameHeader:
    """The first frame header before the scan. Raises NotAnalysable (undecodable) when the markers lead nowhere."""
    position = 2
    while position + 4 <= len(codestream) and codestream[position] == 0xFF:
        marker = codestream[position + 1]
        if marker == 0xFF:  # B.1.1.2: any marker may be preceded by fill bytes FF
            position += 1
            continue
        if marker == _START_OF_SCAN:
            break
        if marker in _FRAME_MARKERS and position + 10 <= len(codestream):
            return _read_frame_header(marker, codestream[position + 4 : position + 10])
        position += 2 + int.from_bytes(codestream[position + 2 : position + 4], "big")
    raise NotAnalysable(Reason.UNDECODABLE, "no JPEG frame header")


def _read_frame_header(marker: int, fields: bytes) -> FrameHeader:
    return FrameHeader(
        marker=marker,
        precision=fields[0],
        rows=int.from_bytes(fields[1:3], "big"),
        columns=int.from_bytes(fields[3:5], "big"),
        components=fields[5],
    )


def _compare(frame: FrameHeader, header: PixelHeader) -> None:
    # PS3.5 8.2.1: the codestream decides and the attributes shall agree. Which of them lies cannot be known, so neither is believed.
    seen = (frame.rows, frame.columns, frame.precision, frame.components)
    if frame.marker not in _EIGHT_BIT_HUFFMAN or seen != (header.rows, header.columns, header.bits_stored, 1):
        detail = f"codestream {frame.rows} x {frame.columns}, {frame.precision} bits, {frame.components} components; "
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, detail + f"header {header.rows} x {header.columns}, {header.bits_stored} bits")
    if header.is_signed:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, "JPEG Baseline samples are unsigned, Pixel Representation is 1")
