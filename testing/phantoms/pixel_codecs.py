"""Transfer Syntaxes in which phantoms can be sent, and their encoders.

Which of them Hilum decodes is another matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import imagecodecs
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    UID,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
)

from testing.phantoms import phantom
from testing.phantoms.phantom_modules import Modality

Pixels = NDArray[Any]
_VIEWS = ("PA", "LATERAL", "AP")


def _jpeg_2000(pixels: Pixels) -> bytes:
    return bytes(imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="j2k", reversible=True))


# None: the phantom's own. JPEG Lossless SV1 is process 14 with predictor 1 (PS3.5 8.2.1).
SYNTAXES: Mapping[str, tuple[UID, Callable[[Pixels], bytes] | None]] = {
    "ExplicitVRLittleEndian": (ExplicitVRLittleEndian, None),
    "ImplicitVRLittleEndian": (ImplicitVRLittleEndian, None),
    "JPEGBaseline8Bit": (JPEGBaseline8Bit, None),
    "JPEGLSLossless": (JPEGLSLossless, lambda pixels: bytes(imagecodecs.jpegls_encode(pixels))),
    "JPEG2000Lossless": (JPEG2000Lossless, _jpeg_2000),
    "JPEGLosslessSV1": (JPEGLosslessSV1, lambda pixels: bytes(imagecodecs.ljpeg_encode(pixels))),
}


def draw_study(
    seed: int, modality: Modality, syntax: str, rows: int, columns: int, bits: int, images: int
) -> list[Dataset]:
    """A study of phantoms: PA, LATERAL, AP and so on."""
    uid, encoder = SYNTAXES[syntax]
    views = [_VIEWS[number % len(_VIEWS)] for number in range(images)]
    drawn_in = uid if encoder is None else ExplicitVRLittleEndian
    drawn = phantom.make_study(
        seed, modality, views, rows=rows, columns=columns, bits=bits, transfer_syntax_uid=drawn_in
    )
    for image in drawn if encoder is not None else ():
        _compress(image, uid, encoder)
    return drawn


def _compress(image: Dataset, uid: UID, encoder: Callable[[Pixels], bytes] | None) -> None:
    if encoder is None:
        return
    image.PixelData = encapsulate([encoder(image.pixel_array)])
    # PS3.5 A.4
    image["PixelData"].VR = "OB"
    image["PixelData"].is_undefined_length = True
    image.file_meta.TransferSyntaxUID = uid
