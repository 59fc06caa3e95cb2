"""JPEG Baseline, Extended and Lossless. Torch-free; the decoder holds no lock.

libjpeg fills missing data with grey and reports success: a file cut to 60 % decodes without an
error. So this module checks the end marker, the markers on the way, the frame header and the end of
the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.codecs import tail
from hilum_preprocessing.codecs.bits import Decoded, Samples, from_samples, without_high_bit
from hilum_preprocessing.codecs.markers import (
    BASELINE,
    EXTENDED,
    LOSSLESS,
    PROGRESSIVE,
    JpegHeader,
    check_entropy_coded_data,
    check_scans,
    compare,
    read_header,
    without_zeros,
)
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header.encapsulation import Codestream
from hilum_preprocessing.header.pixel_header import PixelHeader

# It takes any buffer, although its annotation names bytes.
_JPEG8: Final[Callable[..., Any]] = imagecodecs.jpeg8_decode
# The three Huffman processes of 8 bits. Some writers label extended or progressive as baseline, and
# a decoder needs no label.
_DCT: Final = {BASELINE, EXTENDED, PROGRESSIVE}


def decode_baseline(codestream: Codestream, header: PixelHeader) -> Decoded:
    """Process 1, 8 bits.

    Raises NotAnalysable: truncated, damaged, mismatching the header, or refused by the decoder.
    """
    return _dct(codestream, header, range(8, 9))


def decode_extended(codestream: Codestream, header: PixelHeader) -> Decoded:
    """Processes 2 and 4, 8 or 12 bits; the twelve may be more than Bits Stored."""
    return _dct(codestream, header, range(8, 13, 4))


def decode_lossless(codestream: Codestream, header: PixelHeader) -> Decoded:
    """Process 14, 2 to 16 bits, any predictor.

    A point transform drops bits: flagged as lossy, under any Transfer Syntax.
    """
    found = read_header(codestream)
    compare(found, header, range(2, header.bits_allocated + 1))
    if found.marker != LOSSLESS:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, "no lossless JPEG codestream")
    decoded = from_samples(
        _decoded(codestream, found, header), Samples(found.precision), without_high_bit(header)
    )
    return (
        replace(decoded, flags=(Flag.LOSSY, *decoded.flags)) if found.point_transform else decoded
    )


def _dct(codestream: Codestream, header: PixelHeader, precisions: range) -> Decoded:
    found = read_header(codestream)
    compare(found, header, precisions)
    if found.marker not in _DCT or found.precision < header.bits_stored:
        raise NotAnalysable(
            Reason.CODESTREAM_MISMATCH,
            f"codestream of {found.precision} bits, header {header.bits_stored}",
        )
    if header.is_signed:
        raise NotAnalysable(
            Reason.CODESTREAM_MISMATCH, "lossy JPEG samples are unsigned, Pixel Representation is 1"
        )
    decoded = from_samples(
        _decoded(codestream, found, header), Samples(found.precision, is_lossy=True), header
    )
    return replace(decoded, is_rgb=found.components == 3)


def _decoded(codestream: Codestream, found: JpegHeader, header: PixelHeader) -> NDArray[Any]:
    """(rows, columns) or (rows, columns, 3) as decoded, checked to end where the picture ends."""
    check_entropy_coded_data(codestream, found)
    if found.marker == PROGRESSIVE or found.scan_components < found.components:
        check_scans(codestream, found)
    rows = tail.additional_rows(found)
    if not rows:
        return _decode(codestream, found, header)
    for scan in (found.scan, *without_zeros(codestream, found.scan)):
        if (
            array := _ending_in_time(codestream, replace(found, scan=scan), rows, header)
        ) is not None:
            return array
    raise NotAnalysable(
        Reason.UNDECODABLE, "the entropy-coded data end before or after the last row"
    )


def _ending_in_time(
    codestream: Codestream, found: JpegHeader, rows: int, header: PixelHeader
) -> NDArray[Any] | None:
    for noise in tail.NOISES:
        array = _decode(tail.extended(codestream, found, rows, noise), found, header)
        if tail.ends_in_time(codestream, found, array, noise):
            return array[: found.rows]
        if not tail.may_be_hidden(codestream, found, array, noise):
            break
    return None


def _decode(codestream: Codestream, found: JpegHeader, header: PixelHeader) -> NDArray[Any]:
    """Colour without a marker that says which.

    Libjpeg would guess YCbCr, and DICOM says RGB in the header.
    """
    is_rgb = found.components == 3 and header.photometric == "RGB" and not found.has_colour_marker
    colours = {"colorspace": "RGB", "outcolorspace": "RGB"} if is_rgb else {}
    try:
        return np.asarray(_JPEG8(codestream, **colours))
    except (imagecodecs.Jpeg8Error, ValueError):
        raise NotAnalysable(Reason.UNDECODABLE, "the JPEG decoder refused the codestream") from None
