"""Stored values as encapsulated Pixel Data of each Transfer Syntax, made by encoders that have no part in decoding."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import imagecodecs
import jpeg_ls
import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, generate_frames
from pydicom.filereader import dcmread
from pydicom.pixels.encoders import RLELosslessEncoder
from pydicom.uid import (
    HTJ2K,
    JPEG2000,
    HTJ2KLossless,
    HTJ2KLosslessRPCL,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
    RLELossless,
    generate_uid,
)

from tests.support.objects.radiograph import radiograph, under

Pixels = NDArray[Any]


@dataclass(frozen=True)
class Encoder:
    """`encode(stored values, bits)`; `tolerance` a share of 2^bits."""

    encode: Callable[[Pixels, int], bytes]
    bits: tuple[int, ...]
    is_signed_too: bool = True
    tolerance: float = 0.0

    def grey_levels(self, bits: int) -> float:
        """How far a decoded value may be from what was encoded."""
        return self.tolerance * (1 << bits)


def _bare(array: Pixels, bits: int) -> Pixels:
    """Two's complement in `bits` bits, as unsigned words.

    What codecs without signs are given (PS3.5 8.2).
    """
    return array.view(f"u{array.itemsize}") & np.array((1 << bits) - 1, f"u{array.itemsize}")


def _lossless(predictor: int) -> Callable[[Pixels, int], bytes]:
    return lambda array, bits: bytes(
        imagecodecs.jpeg8_encode(
            _bare(array, bits), lossless=True, predictor=predictor, bitspersample=bits
        )
    )


def _dct(bits_per_sample: int) -> Callable[[Pixels, int], bytes]:
    return lambda array, _: bytes(
        imagecodecs.jpeg8_encode(array, level=98, bitspersample=bits_per_sample)
    )


def _jpeg_ls(near: int) -> Callable[[Pixels, int], bytes]:
    """CharLS by pyjpegls, which writes the given precision.

    Imagecodecs writes 8 or 16.
    """

    def encode(array: Pixels, bits: int) -> bytes:
        rows, columns = array.shape
        if array.size < 8:  # which pyjpegls gives no room for a header
            return bytes(imagecodecs.jpegls_encode(_bare(array, bits), level=near))
        bare = _bare(array, bits).tobytes()
        return bytes(
            jpeg_ls.encode_pixel_data(
                bare, near, rows=rows, columns=columns, samples_per_pixel=1, bits_stored=bits
            )
        )

    return encode


def _j2k(**options: Any) -> Callable[[Pixels, int], bytes]:
    return lambda array, bits: bytes(
        imagecodecs.jpeg2k_encode(array, codecformat="J2K", bitspersample=bits, **options)
    )


def _htj2k(**options: Any) -> Callable[[Pixels, int], bytes]:
    return lambda array, _: bytes(imagecodecs.htj2k_encode(array, **options))


def _rle(array: Pixels, bits: int) -> bytes:
    rows, columns = array.shape[:2]
    return bytes(
        RLELosslessEncoder.encode(
            array,
            rows=rows,
            columns=columns,
            samples_per_pixel=1 if array.ndim == 2 else 3,
            number_of_frames=1,
            bits_allocated=8 * array.itemsize,
            bits_stored=bits,
            pixel_representation=int(array.dtype.kind == "i"),
            photometric_interpretation="MONOCHROME2" if array.ndim == 2 else "RGB",
        )
    )


# OpenJPH's encoder knows words only, so that 10 and 12 bits come as 16.
ENCODERS: Final[Mapping[str, Encoder]] = {
    RLELossless: Encoder(_rle, (8, 10, 12, 16)),
    JPEGBaseline8Bit: Encoder(_dct(8), (8,), is_signed_too=False, tolerance=0.08),
    JPEGExtended12Bit: Encoder(_dct(12), (12,), is_signed_too=False, tolerance=0.08),
    JPEGLossless: Encoder(_lossless(6), (8, 10, 12, 16)),
    JPEGLosslessSV1: Encoder(_lossless(1), (8, 10, 12, 16)),
    JPEGLSLossless: Encoder(_jpeg_ls(0), (8, 10, 12, 16)),
    JPEGLSNearLossless: Encoder(_jpeg_ls(2), (8, 10, 12, 16), is_signed_too=False, tolerance=0.01),
    JPEG2000Lossless: Encoder(_j2k(level=0, reversible=True), (8, 10, 12, 16)),
    JPEG2000: Encoder(_j2k(level=60, reversible=False), (8, 10, 12, 16), tolerance=0.08),
    HTJ2KLossless: Encoder(_htj2k(reversible=True), (8, 16)),
    HTJ2KLosslessRPCL: Encoder(_htj2k(reversible=True, tlm=True), (8, 16)),
    HTJ2K: Encoder(_htj2k(reversible=False, level=1e-5), (8, 16), tolerance=0.08),
}


def encoded(array: Pixels, transfer_syntax_uid: str, bits: int, **attributes: Any) -> Dataset:
    """A chest radiograph with these stored values under this Transfer Syntax."""
    return enclosed(
        ENCODERS[transfer_syntax_uid].encode(array, bits),
        array,
        transfer_syntax_uid,
        bits,
        **attributes,
    )


def enclosed(
    codestream: bytes, array: Pixels, transfer_syntax_uid: str, bits: int, **attributes: Any
) -> Dataset:
    """The same around a codestream, whatever that is; the header describes the array."""
    dataset = radiograph(array, bits_stored=bits, **attributes)
    dataset.PixelData = encapsulate([codestream])
    dataset["PixelData"].VR, dataset["PixelData"].is_undefined_length = "OB", True
    return under(dataset, transfer_syntax_uid)


def by_dcmtk(array: Pixels, bits: int, folder: Path, *options: str) -> bytes:
    """A codestream of DCMTK's dcmcjpeg, which writes Huffman tables of the picture's own and point transforms."""
    uids = {
        keyword: generate_uid()
        for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID")
    }
    plain, coded = folder / "plain.dcm", folder / "coded.dcm"
    radiograph(array, bits_stored=bits, **uids).save_as(plain, enforce_file_format=True)
    subprocess.run(["dcmcjpeg", *options, plain, coded], check=True)
    return next(generate_frames(dcmread(coded).PixelData, number_of_frames=1))


def read_by_dcmtk(file: Path) -> Pixels:
    """The stored values of a compressed file, as DCMTK's dcmdjpeg decodes them."""
    plain = file.with_name("decoded.dcm")
    subprocess.run(["dcmdjpeg", file, plain], check=True)
    return dcmread(plain).pixel_array
