"""Where a codestream ends: padding of any kind, and bytes before the end marker, are no truncation.

What is cut still is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom.encaps import encapsulate
from pydicom.uid import (
    HTJ2KLossless,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
    RLELossless,
)

from hilum_preprocessing import NotAnalysable, Reason, decode
from tests.support.objects.encoders import ENCODERS, enclosed, encoded
from tests.support.objects.radiograph import scene

WITH_END_MARKER = [uid for uid in ENCODERS if uid != RLELossless]
WITH_FILL_BYTES = [
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEGLSNearLossless,
]
PADDINGS = [
    b" ",
    b"\x01",
    b"\xd9",
    b"\r\n",
    b"\x20\x00\x00",
    b"\0\x20",
    b"\x01\x02\x03\x04\x05",
    bytes(511),
    bytes(2048),
    b"\xff\xd9",
]
END = b"\xff\xd9"


def coded(uid: str) -> tuple[NDArray[Any], bytes, int]:
    bits = ENCODERS[uid].bits[-1]
    array = scene(67, 59, bits).astype(np.uint8 if bits == 8 else np.uint16)
    return array, ENCODERS[uid].encode(array, bits), bits


def is_whole(uid: str, codestream: bytes) -> bool:
    array, _, bits = coded(uid)
    return np.array_equal(
        decode(enclosed(codestream, array, uid, bits)).array,
        decode(encoded(array, uid, bits)).array,
    )


def reason_of(uid: str, codestream: bytes) -> Reason:
    array, _, bits = coded(uid)
    with pytest.raises(NotAnalysable) as refused:
        decode(enclosed(codestream, array, uid, bits))
    return refused.value.reason


@pytest.mark.parametrize(
    "padding", PADDINGS, ids=lambda padding: f"{len(padding)}x{padding.hex()[:10]}"
)
@pytest.mark.parametrize("uid", WITH_END_MARKER)
def test_whatever_a_writer_pads_with_the_file_is_whole(uid, padding):
    assert is_whole(uid, coded(uid)[1] + padding)


@pytest.mark.parametrize(
    "padding", PADDINGS[:-1], ids=lambda padding: f"{len(padding)}x{padding.hex()[:10]}"
)
@pytest.mark.parametrize("uid", WITH_END_MARKER)
def test_what_was_cut_is_not_made_whole_by_padding(uid, padding):
    whole = coded(uid)[1]
    for length in (
        *range(len(whole) // 3, len(whole) - 2, len(whole) // 9),
        len(whole) - 3,
        len(whole) - 2,
    ):
        assert reason_of(uid, whole[:length] + padding) in (
            Reason.TRUNCATED_PIXEL_DATA,
            Reason.UNDECODABLE,
        ), length


@pytest.mark.parametrize("uid", WITH_END_MARKER)
def test_without_its_end_marker_it_is_truncated(uid):
    assert reason_of(uid, coded(uid)[1][:-2]) is Reason.TRUNCATED_PIXEL_DATA


@pytest.mark.parametrize("zeros", [1, 2, 3])
@pytest.mark.parametrize("uid", WITH_END_MARKER)
def test_zeros_before_the_end_marker(uid, zeros):
    """Some writers make the place of the marker even, and not that behind it."""
    assert is_whole(uid, coded(uid)[1][:-2] + bytes(zeros) + END)


@pytest.mark.parametrize("uid", [JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless, HTJ2KLossless])
def test_zeros_in_the_place_of_data_are_no_padding(uid):
    whole = coded(uid)[1]
    for cut in (4, 8, 40, 400):
        for zeros in (1, 2):
            damaged = whole[: -2 - cut] + bytes(zeros) + END
            assert reason_of(uid, damaged) in (Reason.TRUNCATED_PIXEL_DATA, Reason.UNDECODABLE), (
                cut,
                zeros,
            )


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("uid", WITH_FILL_BYTES)
def test_fill_bytes_before_any_marker(uid, count):
    """ISO/IEC 10918-1 B.1.1.2."""
    whole = coded(uid)[1]
    scan = whole.index(b"\xff\xda")
    for at in (2, scan, len(whole) - 2):
        assert is_whole(uid, whole[:at] + b"\xff" * count + whole[at:]), at


@pytest.mark.parametrize("padding", [b" ", b"\x01\x02", bytes(600)])
@pytest.mark.parametrize("uid", WITH_END_MARKER)
def test_frames_are_told_apart_by_their_end_markers_whatever_pads_them(uid, padding):
    array, whole, bits = coded(uid)
    dataset = encoded(array, uid, bits, NumberOfFrames=2)
    half = len(whole) // 2 // 2 * 2
    pieces = [piece for _ in range(2) for piece in (whole[:half], whole[half:] + padding)]
    dataset.PixelData = encapsulate(
        [piece + b"\0" * (len(piece) % 2) for piece in pieces], has_bot=False
    )
    assert np.array_equal(
        decode(dataset, frames="first").array, decode(encoded(array, uid, bits)).array
    )


# --- RLE, which has no end marker
# -------------------------------------------------------------------------------------


def segments_of(codestream: bytes) -> list[bytes]:
    count, *starts = np.frombuffer(codestream[:64], "<u4").tolist()
    bounds = [*starts[:count], len(codestream)]
    return [codestream[start:stop] for start, stop in pairwise(bounds)]


def of_segments(segments: list[bytes]) -> bytes:
    starts = np.cumsum([64, *(len(segment) for segment in segments)])[:-1]
    return np.array([len(segments), *starts], "<u4").tobytes().ljust(64, b"\0") + b"".join(segments)


def without_pad(segment: bytes, length: int) -> bytes:
    """The segment's runs alone."""
    position = made = 0
    while made < length:
        code = segment[position]
        made, position = (
            (made + code + 1, position + code + 2)
            if code < 128
            else (made + 257 - code, position + 2)
        )
    return segment[:position]


@pytest.mark.parametrize(
    "behind",
    [
        b"\0\0",
        b"\0\x07",
        b"\x01\x07\x08",
        b"\xff\x07",
        b"\x80",
        b"\x80\x80",
        b"\0",
        b"\x05",
        b"\xfe",
        b"\x09ab",
        b"\0\0\0\0",
        b" ",
    ],
    ids=lambda behind: behind.hex(),
)
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_rle_segments_of_a_little_too_much(which, behind):
    """A byte or two that were coded behind the plane, and padding that looks like the beginning of a run."""
    array, whole, _ = coded(RLELossless)
    segments = [without_pad(segment, array.size) for segment in segments_of(whole)]
    assert is_whole(RLELossless, of_segments(segments))
    assert is_whole(
        RLELossless,
        of_segments([part + behind * (at in which) for at, part in enumerate(segments)]),
    )


def test_an_rle_run_that_reaches_beyond_its_plane_is_shortened():
    array, _, bits = coded(RLELossless)
    array[-1, -5:] = 700
    high, low = segments_of(ENCODERS[RLELossless].encode(array, bits))
    cut = [without_pad(segment, array.size) for segment in (high, low)]
    assert all(segment[-2] > 128 for segment in cut), "both planes end with a run of one byte"
    longer = of_segments([segment[:-2] + bytes([segment[-2] - 3, segment[-1]]) for segment in cut])
    assert np.array_equal(decode(enclosed(longer, array, RLELossless, bits)).array, array)


def test_rle_segments_that_were_cut_or_are_much_too_long_are_refused():
    array, whole, _ = coded(RLELossless)
    high, low = (without_pad(segment, array.size) for segment in segments_of(whole))
    for length in range(1, len(low), len(low) // 20):
        assert reason_of(RLELossless, of_segments([high, low[:length]])) in (
            Reason.TRUNCATED_PIXEL_DATA,
            Reason.UNDECODABLE,
        )
    assert reason_of(RLELossless, of_segments([high, low + low])) is Reason.EXCESS_PIXEL_DATA
    assert reason_of(RLELossless, of_segments([high, low + b"\x81\0"])) is Reason.EXCESS_PIXEL_DATA
