"""JPEG-LS, lossless and near-lossless (ISO/IEC 14495-1). Torch-free; the decoder holds no lock, and refuses what does not end in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import imagecodecs

from hilum_preprocessing.bits import Decoded, Samples, from_samples, without_high_bit
from hilum_preprocessing.codecs.markers import JPEG_LS, compare, read_header
from hilum_preprocessing.encapsulation import Codestream
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header import PixelHeader

_JPEGLS: Final[Callable[..., Any]] = imagecodecs.jpegls_decode  # takes any buffer, whatever its annotation says


def decode_jpeg_ls(codestream: Codestream, header: PixelHeader) -> Decoded:
    """Samples are unsigned always: signed stored values are there as their two's complement (PS3.5 8.2.3)."""
    found = read_header(codestream)
    compare(found, header, range(2, header.bits_allocated + 1))
    if found.marker != JPEG_LS:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, "no JPEG-LS codestream")
    try:
        array = _JPEGLS(codestream)
    except (imagecodecs.JpeglsError, ValueError):
        raise NotAnalysable(Reason.UNDECODABLE, "the JPEG-LS decoder refused the codestream") from None
    near = found.scan_parameter  # C.2.3: NEAR, by which a decoded sample may differ
    if header.samples > 1 and array.shape == (header.samples, header.rows, header.columns):
        array = array.transpose(1, 2, 0)
    return from_samples(array, Samples(found.precision, is_lossy=near > 0, reach=near), without_high_bit(header))
