"""Pixel Representation and the order of bytes against the pixels.

No picture wraps around, where words have no bit to spare either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom.uid import (
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    JPEG2000Lossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from hilum_preprocessing import Reason, decode, decode_frames
from tests.support.objects.encoders import ENCODERS, encoded
from tests.support.objects.radiograph import radiograph, reason_of, scene, under

SYNTAXES = [
    ExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    RLELossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEG2000Lossless,
    HTJ2KLossless,
]


def unsigned(bits: int, seed: int = 0) -> NDArray[Any]:
    """A picture of the whole range, with its edges smooth as an X-ray's are."""
    array = scene(96, 88, bits, seed)
    return array.astype(np.uint8) if bits == 8 else array


def with_sign(bits: int, *, lowest: float = -0.5) -> NDArray[Any]:
    """Words without sign extension of a picture from `lowest`, a share of 2^bits, to the largest value."""
    share = scene(96, 88, 16).astype(np.float64) / 65535
    values = np.rint((lowest + share * (0.5 - lowest)) * (2**bits - 1)).astype(np.int64)
    return (values % (1 << bits)).astype(np.uint8 if bits == 8 else np.uint16)


def under_syntax(array: NDArray[Any], bits: int, uid: str, **attributes: Any) -> Any:
    if uid in ENCODERS:
        return encoded(array, uid, bits, **attributes)
    order = ">" if uid == ExplicitVRBigEndian else "<"
    pixels = array.astype(array.dtype.newbyteorder(order)).tobytes()
    return under(radiograph(array, bits, **{"PixelData": pixels, **attributes}), uid)


@pytest.mark.parametrize("uid", SYNTAXES)
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_a_sign_said_of_a_picture_without_one_is_refused(bits, uid):
    assert (
        reason_of(under_syntax(unsigned(bits), bits, uid, PixelRepresentation=1))
        is Reason.DEPTH_CONTRADICTED
    )


@pytest.mark.parametrize("uid", SYNTAXES)
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_a_picture_with_a_sign_that_is_not_said_is_refused(bits, uid):
    assert reason_of(under_syntax(with_sign(bits), bits, uid)) is Reason.DEPTH_CONTRADICTED


@pytest.mark.parametrize("lowest", [-0.25, -0.125])
def test_the_same_where_less_of_the_picture_is_below_zero(lowest):
    assert reason_of(radiograph(with_sign(16, lowest=lowest))) is Reason.DEPTH_CONTRADICTED


def test_the_same_of_twelve_bits_with_a_sign_in_words_of_sixteen():
    array = unsigned(12).astype(np.int32) - 2048
    assert (
        reason_of(radiograph(array.astype(np.int16), 16, PixelRepresentation=0))
        is Reason.DEPTH_CONTRADICTED
    )


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_a_picture_is_taken_by_its_header_where_that_is_right(bits):
    for seed in range(3):
        array = unsigned(bits, seed)
        assert np.array_equal(decode(radiograph(array, bits)).array, array)
        signed = (array.astype(np.int32) - (1 << bits - 1)).astype(f"i{array.itemsize}")
        assert np.array_equal(decode(radiograph(signed, bits)).array, signed)


@pytest.mark.parametrize("bits", [8, 12])
def test_white_letters_and_borders_on_black_are_no_sign(bits):
    rng = np.random.default_rng(0)
    array = (scene(160, 144, bits) // 4).astype(np.int64)
    array[20:40, 10:130:3] = (1 << bits) - 1
    array[:, :12] = (1 << bits) - 1
    array = np.clip(array + rng.integers(-2, 3, array.shape), 0, (1 << bits) - 1).astype(
        np.uint8 if bits == 8 else np.uint16
    )
    assert np.array_equal(decode(radiograph(array, bits)).array, array)


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("uid", [ExplicitVRLittleEndian, ExplicitVRBigEndian])
def test_bytes_in_the_other_order_are_refused(uid, is_signed):
    array = unsigned(16)
    words = (array ^ 0x8000) if is_signed else array
    assert (
        reason_of(under_syntax(words.byteswap(), 16, uid, PixelRepresentation=int(is_signed)))
        is Reason.DEPTH_CONTRADICTED
    )


@pytest.mark.parametrize("spare", [4, 6, 8])
def test_words_that_fill_the_upper_bits_alone_are_in_order(spare):
    array = scene(96, 88, 16 - spare) << spare
    assert np.array_equal(decode(radiograph(array)).array, array)


def test_frames_as_pydicom_has_them_are_not_judged():
    swapped = unsigned(16).byteswap()
    assert np.array_equal(decode_frames(radiograph(swapped)), swapped)
