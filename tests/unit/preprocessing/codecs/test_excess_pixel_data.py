"""Pixel Data that holds more than the header says: another picture, unless the rest is padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from hilum_preprocessing import InputSpec, NotAnalysable, Reason, decode
from hilum_preprocessing.prepare import prepare
from tests.support.objects.encoders import ENCODERS, enclosed, encoded
from tests.support.objects.radiograph import radiograph, reason_of, scene, under

ROWS, COLUMNS = 96, 88
GREY = scene(ROWS, COLUMNS, 12)
NATIVE = [
    ImplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    DeflatedExplicitVRLittleEndian,
]


def native(uid: str = ExplicitVRLittleEndian, **attributes: Any) -> Dataset:
    pixels = GREY.astype(">u2" if uid == ExplicitVRBigEndian else "<u2").tobytes()
    return under(radiograph(GREY, 12, **{"PixelData": pixels, **attributes}), uid)


# --- uncompressed
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", NATIVE)
@pytest.mark.parametrize(
    "attributes",
    [
        {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7},
        {"Rows": ROWS // 2},
        {"Rows": ROWS - 1},
        {"Columns": COLUMNS // 2},
        {"Columns": COLUMNS - 1},
        {"Rows": ROWS // 2, "Columns": COLUMNS // 2},
    ],
    ids=str,
)
def test_a_header_of_less_than_there_is_is_not_believed(uid, attributes):
    assert reason_of(native(uid, **attributes)) is Reason.EXCESS_PIXEL_DATA


@pytest.mark.parametrize("times", [2, 3, 7])
@pytest.mark.parametrize("said", [1, None])
def test_several_frames_without_their_number(times, said):
    frames = native().PixelData * times
    for dataset in (
        native(NumberOfFrames=said or 1, PixelData=frames),
        native(PixelData=frames + b"\0\0"),
    ):
        assert reason_of(dataset) is Reason.EXCESS_PIXEL_DATA
        assert reason_of(dataset, frames="first") is Reason.EXCESS_PIXEL_DATA


def test_more_frames_than_their_number():
    assert (
        reason_of(native(NumberOfFrames=2, PixelData=native().PixelData * 3), frames="first")
        is Reason.EXCESS_PIXEL_DATA
    )


def test_an_empty_second_frame_is_no_padding():
    assert (
        reason_of(native(PixelData=native().PixelData + bytes(2 * GREY.size)))
        is Reason.EXCESS_PIXEL_DATA
    )


def test_three_samples_under_one():
    grey = (GREY >> 4).astype(np.uint8)
    assert (
        reason_of(radiograph(grey, PixelData=np.dstack([grey] * 3).tobytes()))
        is Reason.EXCESS_PIXEL_DATA
    )


def test_three_samples_under_a_photometric_interpretation_of_two():
    """YBR_FULL_422 in full resolution, as some writers leave it."""
    grey = (GREY >> 4).astype(np.uint8)
    colour = {
        "SamplesPerPixel": 3,
        "PhotometricInterpretation": "YBR_FULL_422",
        "PlanarConfiguration": 0,
    }
    assert (
        reason_of(radiograph(grey, PixelData=np.dstack([grey] * 3).tobytes(), **colour), rgb="luma")
        is Reason.EXCESS_PIXEL_DATA
    )


def test_a_row_of_other_pixels_is_no_padding():
    row = GREY[0].astype("<u2").tobytes()
    assert reason_of(native(PixelData=native().PixelData + row)) is Reason.EXCESS_PIXEL_DATA


def test_a_black_column_too_many_is_no_padding_where_it_is_longer_than_a_sector():
    """A header of a column too few shears the picture, whose last row may be black."""
    tall = np.zeros((1100, 8), np.uint16)
    tall[:1000] = scene(1000, 8, 12)
    assert reason_of(radiograph(tall, 12, Columns=7)) is Reason.EXCESS_PIXEL_DATA


@pytest.mark.parametrize("uid", NATIVE)
@pytest.mark.parametrize(
    "padding",
    [
        b"\0",
        b"\0\0\0",
        b"\xff",
        b" ",
        b"\r\n",
        b"\x12\x34\x56\x78",
        bytes(512),
        bytes(1536),
        bytes(2048),
        bytes(5000),
        bytes(160),
    ],
    ids=lambda padding: f"{len(padding)}x{padding[0]:02x}",
)
def test_padding_is_passed_over(uid, padding):
    """The odd byte, a word or two of anything, zeros up to a sector and beyond."""
    assert np.array_equal(
        decode(native(uid, PixelData=native(uid).PixelData + padding)).array, GREY
    )


def test_the_odd_byte_of_a_picture_of_one_pixel():
    assert decode(radiograph(np.array([[7]], np.uint8), PixelData=b"\x07\0")).array.tolist() == [
        [7]
    ]


@pytest.mark.parametrize("recipe", ["torchxrayvision_224", "chexpert_320"])
def test_no_recipe_sees_half_a_picture(recipe):
    with pytest.raises(NotAnalysable) as refused:
        prepare(
            native(BitsAllocated=8, BitsStored=8, HighBit=7),
            InputSpec.from_mapping({"recipe": recipe}),
        )
    assert refused.value.reason is Reason.EXCESS_PIXEL_DATA


# --- encapsulated
# -----------------------------------------------------------------------------------------------------


def coded(uid: str, seed: int = 0) -> tuple[Any, bytes, int]:
    bits = ENCODERS[uid].bits[-1]
    array = scene(ROWS, COLUMNS, bits, seed).astype(np.uint8 if bits == 8 else np.uint16)
    return array, ENCODERS[uid].encode(array, bits), bits


@pytest.mark.parametrize("has_bot", [False, True])
@pytest.mark.parametrize("fragments_per_frame", [1, 3])
@pytest.mark.parametrize("uid", ENCODERS)
def test_more_codestreams_than_frames(uid, fragments_per_frame, has_bot):
    array, first, bits = coded(uid)
    if uid == RLELossless:
        fragments_per_frame = 1  # PS3.5 A.4.2: a frame is a fragment
    _, second, _ = coded(uid, 1)
    dataset = encoded(array, uid, bits)
    dataset.PixelData = encapsulate(
        [first, second, second], fragments_per_frame=fragments_per_frame, has_bot=has_bot
    )
    assert reason_of(dataset) is Reason.EXCESS_PIXEL_DATA
    dataset.NumberOfFrames = 2
    assert reason_of(dataset, frames="first") is Reason.EXCESS_PIXEL_DATA
    dataset.NumberOfFrames = 3
    assert np.abs(decode(dataset, frames="first").array.astype(int) - array).max() <= ENCODERS[
        uid
    ].grey_levels(bits)


@pytest.mark.parametrize("uid", [uid for uid in ENCODERS if uid != RLELossless])
def test_two_codestreams_in_one_fragment(uid):
    array, first, bits = coded(uid)
    _, second, _ = coded(uid, 1)
    for between in (b"", b"\0", b"\0\0\xff"):
        assert (
            reason_of(enclosed(first + between + second, array, uid, bits))
            is Reason.EXCESS_PIXEL_DATA
        )


def test_a_fragment_that_begins_like_a_codestream_is_part_of_one_unless_another_ended_before_it():
    """Fragments may be cut anywhere."""
    array, whole, bits = coded(next(uid for uid in ENCODERS if uid != RLELossless))
    dataset = enclosed(whole, array, next(uid for uid in ENCODERS if uid != RLELossless), bits)
    expected = decode(dataset).array
    for cut in (1, 2, 20, len(whole) - 2, len(whole) - 1):
        dataset.PixelData = encapsulate_pieces([whole[:cut], whole[cut:]])
        assert np.array_equal(decode(dataset).array, expected), cut


def encapsulate_pieces(pieces: list[bytes]) -> bytes:
    """Items of one frame, of odd length where a piece is."""
    items = [
        b"\xfe\xff\x00\xe0" + len(piece).to_bytes(4, "little") + piece for piece in (b"", *pieces)
    ]
    return b"".join(items)


@pytest.mark.parametrize(
    "attributes",
    [{"Rows": ROWS // 2}, {"Rows": ROWS - 1}, {"Columns": COLUMNS // 2}, {"Columns": COLUMNS - 1}],
    ids=str,
)
def test_rle_segments_of_a_row_or_a_column_more(attributes):
    assert reason_of(encoded(GREY, RLELossless, 12, **attributes)) in (
        Reason.EXCESS_PIXEL_DATA,
        Reason.UNDECODABLE,
    )


@pytest.mark.parametrize(
    "attributes", [{"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}], ids=str
)
def test_rle_of_more_segments_than_the_header_says(attributes):
    assert reason_of(encoded(GREY, RLELossless, 12, **attributes)) is Reason.CODESTREAM_MISMATCH
