"""The Transfer Syntaxes of `make bench-preprocess`.

Who encodes the pictures, and which decoders stand on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import imagecodecs
from numpy.typing import NDArray
from pydicom.uid import (
    UID,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
)

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Syntax:
    """`chosen`: the plug-in that pydicom takes where all of its plug-ins are installed.

    `fastest`: a quicker one, if there is one.
    """

    uid: UID
    goal: float
    encode: Callable[[Array], bytes] | None = None
    decode: Callable[..., Any] | None = None
    chosen: str = ""
    fastest: str = ""
    bits: int = 12


SYNTAXES: Mapping[str, Syntax] = {
    "Explicit VR Little Endian": Syntax(ExplicitVRLittleEndian, 20),
    "JPEG Baseline, 8 bits": Syntax(
        JPEGBaseline8Bit,
        15,
        lambda x: bytes(imagecodecs.jpeg8_encode(x, level=92)),
        imagecodecs.jpeg8_decode,
        "gdcm",
        "pillow",
        bits=8,
    ),
    "JPEG Lossless SV1": Syntax(
        JPEGLosslessSV1,
        7.5,
        lambda x: bytes(imagecodecs.jpeg8_encode(x, lossless=True, predictor=1, bitspersample=12)),
        imagecodecs.jpeg8_decode,
        "gdcm",
    ),
    "HTJ2K lossless": Syntax(
        HTJ2KLossless,
        7,
        lambda x: bytes(imagecodecs.htj2k_encode(x, reversible=True)),
        imagecodecs.htj2k_decode,
        "pylibjpeg",
    ),
    "JPEG-LS lossless": Syntax(
        JPEGLSLossless,
        3.5,
        lambda x: bytes(imagecodecs.jpegls_encode(x)),
        imagecodecs.jpegls_decode,
        "gdcm",
        "pyjpegls",
    ),
    "JPEG 2000 lossless": Syntax(
        JPEG2000Lossless,
        1.6,
        lambda x: bytes(
            imagecodecs.jpeg2k_encode(
                x, level=0, codecformat="j2k", reversible=True, bitspersample=12
            )
        ),
        imagecodecs.jpeg2k_decode,
        "gdcm",
        "pillow",
    ),
}


def plugins_for(uid: UID) -> tuple[str, ...]:
    """Those of pydicom that are installed here and decode this Transfer Syntax."""
    from pydicom.pixels.decoders.base import get_decoder  # noqa: PLC0415 - looks for plug-ins when it is imported

    return tuple(get_decoder(uid).available_plugins)
