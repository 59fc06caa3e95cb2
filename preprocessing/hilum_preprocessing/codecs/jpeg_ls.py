"""JPEG-LS, lossless and near-lossless (ISO/IEC 14495-1).

Torch-free; the decoder holds no lock, and refuses data that do not end in time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final

import imagecodecs
import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.codecs.bits import Decoded, Samples, from_samples, without_high_bit
from hilum_preprocessing.codecs.markers import (
    JPEG_LS,
    JpegHeader,
    compare,
    read_header,
    require_one_image,
    without_zeros,
)
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.encapsulation import END_MARKER, Codestream
from hilum_preprocessing.header.pixel_header import PixelHeader

# It takes any buffer, although its annotation names bytes.
_JPEGLS: Final[Callable[..., Any]] = imagecodecs.jpegls_decode


def decode_jpeg_ls(codestream: Codestream, header: PixelHeader) -> Decoded:
    """Samples are unsigned always.

    Signed stored values are there as their two's complement (PS3.5 8.2.3).
    """
    found = read_header(codestream)
    compare(found, header, range(2, header.bits_allocated + 1))
    if found.marker != JPEG_LS:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, "no JPEG-LS codestream")
    require_one_image(codestream, found.scan)
    array = _samples_last(_decoded(codestream, found), header)
    near = found.scan_parameter  # C.2.3: NEAR, by which a decoded sample may differ
    samples = Samples(found.precision, is_lossy=near > 0, reach=near)
    return from_samples(array, samples, without_high_bit(header))


def _samples_last(array: NDArray[Any], header: PixelHeader) -> NDArray[Any]:
    """(rows, columns, samples), also of a codestream that holds one plane after the other."""
    is_by_plane = array.shape == (header.samples, header.rows, header.columns)
    return array.transpose(1, 2, 0) if header.samples > 1 and is_by_plane else array


def _decoded(codestream: Codestream, found: JpegHeader) -> NDArray[Any]:
    """CharLS wants the end marker right behind the data.

    Where it refuses, zero bytes between the two are left out.
    """
    shorter = (
        bytes(codestream[: scan.stop]) + END_MARKER
        for scan in without_zeros(codestream, found.scan)
    )
    for whole in chain([codestream], shorter):
        try:
            return np.asarray(_JPEGLS(whole))
        except (imagecodecs.JpeglsError, ValueError):
            continue
    raise NotAnalysable(Reason.UNDECODABLE, "the JPEG-LS decoder refused the codestream")
