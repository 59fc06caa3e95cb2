"""Which decoder reads which Transfer Syntax.

Every one of them is in C, permissively licensed, and lets other threads run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray
from pydicom.uid import (
    HTJ2K,
    JPEG2000,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    HTJ2KLosslessRPCL,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
    RLELossless,
)

from hilum_preprocessing.codecs.bits import Decoded
from hilum_preprocessing.codecs.jpeg import decode_baseline, decode_extended, decode_lossless
from hilum_preprocessing.codecs.jpeg2000 import (
    decode_htj2k,
    decode_j2k,
    levels_of_htj2k,
    levels_of_j2k,
    reduce_htj2k,
    reduce_j2k,
)
from hilum_preprocessing.codecs.jpeg_ls import decode_jpeg_ls
from hilum_preprocessing.codecs.rle import decode_rle
from hilum_preprocessing.header.encapsulation import Codestream
from hilum_preprocessing.header.pixel_header import PixelHeader


@dataclass(frozen=True, slots=True)
class Reduction:
    """`levels`: how often a codestream's picture can be halved. `decode`: that often or less."""

    levels: Callable[[Codestream, PixelHeader], int]
    decode: Callable[[Codestream, PixelHeader, int], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec: `decode` takes one frame's codestream.

    `reduction`: the same at a lower resolution. `is_lossy`: of the codec itself, not of the header.
    """

    decode: Callable[[Codestream, PixelHeader], Decoded]
    reduction: Reduction | None = None
    is_lossy: bool = False


NATIVE: Final = frozenset(
    {
        ImplicitVRLittleEndian,
        ExplicitVRLittleEndian,
        ExplicitVRBigEndian,
        DeflatedExplicitVRLittleEndian,
    }
)

CODECS: Final[Mapping[str, Codec]] = {
    RLELossless: Codec(decode_rle),
    JPEGBaseline8Bit: Codec(decode_baseline, is_lossy=True),
    JPEGExtended12Bit: Codec(decode_extended, is_lossy=True),
    JPEGLossless: Codec(decode_lossless),
    JPEGLosslessSV1: Codec(decode_lossless),
    JPEGLSLossless: Codec(decode_jpeg_ls),
    JPEGLSNearLossless: Codec(decode_jpeg_ls, is_lossy=True),
    JPEG2000Lossless: Codec(decode_j2k, Reduction(levels_of_j2k, reduce_j2k)),
    JPEG2000: Codec(decode_j2k, Reduction(levels_of_j2k, reduce_j2k), is_lossy=True),
    HTJ2KLossless: Codec(decode_htj2k, Reduction(levels_of_htj2k, reduce_htj2k)),
    HTJ2KLosslessRPCL: Codec(decode_htj2k, Reduction(levels_of_htj2k, reduce_htj2k)),
    HTJ2K: Codec(decode_htj2k, Reduction(levels_of_htj2k, reduce_htj2k), is_lossy=True),
}
