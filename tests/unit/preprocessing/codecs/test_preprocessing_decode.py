"""From bytes to stored values.

Bit layouts, JPEG Baseline, and the damage that must end with a reason.
"""

from __future__ import annotations

import io
import math
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
)

from hilum_preprocessing import Flag, NotAnalysable, Reason, decode, read_file
from hilum_preprocessing.header.luts import Rescale, modality_of
from testing.phantoms.phantom import make_instance, save
from tests.support.objects.radiograph import (
    jpeg,
    jpeg_radiograph,
    radiograph,
    ramp,
    reason_of,
    scene,
    under,
)

GREY = (scene(24, 20) >> 4).astype(np.uint8)


# --- uncompressed
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", "<i2"])
@pytest.mark.parametrize("transfer_syntax_uid", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.1"])
def test_uncompressed_values_come_back_as_they_were(dtype, transfer_syntax_uid):
    info = np.iinfo(dtype)
    array = np.linspace(info.min, info.max, 7 * 5).astype(dtype).reshape(7, 5)
    stored = decode(under(radiograph(array), transfer_syntax_uid))
    assert stored.array.dtype == np.dtype(dtype)
    assert np.array_equal(stored.array, array)
    assert stored.flags == ()


def test_garbage_above_the_stored_bits_is_cleared_and_flagged():
    """Trap 8: older objects keep overlays there."""
    array = ramp(16, 16)
    stored = decode(radiograph(array | 0xA000, bits_stored=12))
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)


def test_signed_values_without_sign_extension_get_their_sign():
    """Trap 9: 12 bits in 16, the upper four left at 0."""
    array = (ramp(16, 16).astype(np.int16) - 2048).astype(np.int16)
    bare = (array & 0x0FFF).astype(np.int16)
    assert bare.min() >= 0
    for given in (array, bare):
        stored = decode(radiograph(given, bits_stored=12))
        assert stored.array.dtype == np.int16
        assert np.array_equal(stored.array, array)


@pytest.mark.parametrize("is_signed", [False, True])
def test_high_bit_above_bits_stored_shifts(is_signed):
    """Trap 9: the ACR-NEMA layout with the stored bits on top."""
    array = (
        ramp(16, 16) if not is_signed else (ramp(16, 16).astype(np.int16) - 2048).astype(np.int16)
    )
    stored = decode(radiograph((array << 4).astype(array.dtype), bits_stored=12, HighBit=15))
    assert np.array_equal(stored.array, array)
    assert Flag.HIGH_BITS_CLEARED not in stored.flags


def test_a_clean_frame_is_a_view_of_pixel_data_and_nothing_writes_to_it():
    dataset = radiograph(ramp(16, 16), bits_stored=12)
    stored = decode(dataset)
    assert np.shares_memory(stored.array, np.frombuffer(dataset.PixelData, "u1"))
    assert stored.ends in (
        None,
        (stored.array.min(), stored.array.max()),
    ), "None where no C compiler was"


def test_high_bit_is_assumed_only_when_it_is_missing():
    assert np.array_equal(
        decode(radiograph(ramp(8, 8), bits_stored=12, HighBit=None)).array, ramp(8, 8)
    )


@pytest.mark.parametrize("missing_bytes", [1, 2, 40, 640])
def test_pixel_data_shorter_than_the_header_says_is_truncated(missing_bytes):
    """Trap 21, and `truncated_pixeldata` of the public data sets."""
    array = ramp(16, 20)
    assert (
        reason_of(radiograph(array, PixelData=array.tobytes()[:-missing_bytes] or b"\0"))
        is Reason.TRUNCATED_PIXEL_DATA
    )


def test_pixel_data_longer_than_the_header_says_is_read_up_to_its_end():
    array = ramp(16, 20)
    assert np.array_equal(
        decode(radiograph(array, PixelData=array.tobytes() + b"\0\0\xff\xff")).array, array
    )


def test_odd_number_of_bytes_with_its_padding():
    array = np.arange(15, dtype=np.uint8).reshape(5, 3)
    assert np.array_equal(decode(radiograph(array, PixelData=array.tobytes() + b"\0")).array, array)


def test_encapsulated_pixel_data_under_an_uncompressed_syntax():
    """Trap 21: undefined length says encapsulated, the Transfer Syntax says not."""
    dataset = radiograph(GREY, PixelData=encapsulate([GREY.tobytes() * 2]))
    dataset["PixelData"].is_undefined_length = True
    assert reason_of(dataset) is Reason.UNDECODABLE


def test_a_size_that_nobody_can_have_is_refused_before_anything_is_allocated():
    """Trap 47: 65535 x 65535 is four gigapixels in a header of a few bytes."""
    dataset = radiograph(ramp(4, 4), Rows=65535, Columns=65535)
    tracemalloc.start()
    assert reason_of(dataset) is Reason.TOO_LARGE
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert reason_of(jpeg_radiograph(GREY, Rows=65535, Columns=65535)) is Reason.TOO_LARGE


def test_the_limit_counts_pixels_and_includes_itself():
    dataset = radiograph(ramp(16, 20))
    assert decode(dataset, maximum_pixels=320).array.shape == (16, 20)
    assert reason_of(dataset, maximum_pixels=319) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "transfer_syntax_uid",
    ["1.2.840.10008.1.2.4.92", "1.2.840.10008.1.2.4.103", "1.2.840.10008.1.2.4.111", "1.2.3"],
)
def test_other_transfer_syntaxes_end_with_their_reason(transfer_syntax_uid):
    assert (
        reason_of(under(radiograph(ramp(8, 8)), transfer_syntax_uid))
        is Reason.TRANSFER_SYNTAX_NOT_SUPPORTED
    )


def test_without_a_transfer_syntax_the_pixels_cannot_be_read():
    dataset = radiograph(ramp(8, 8))
    del dataset.file_meta.TransferSyntaxUID
    assert reason_of(dataset) is Reason.CORRUPT_HEADER
    del dataset.file_meta
    assert reason_of(dataset) is Reason.CORRUPT_HEADER


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"NumberOfFrames": 3}, Reason.MULTI_FRAME),
        ({"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"}, Reason.NOT_MONOCHROME),
        ({"PixelData": None}, Reason.NO_PIXEL_DATA),
        ({"Rows": None}, Reason.CORRUPT_HEADER),
    ],
)
def test_decoding_guards_itself(attributes, reason):
    """A caller may decode without having asked the tags first."""
    assert reason_of(radiograph(ramp(8, 8), **attributes)) is reason


# --- JPEG Baseline
# ----------------------------------------------------------------------------------------------------


def test_jpeg_baseline_is_decoded_and_flagged_as_lossy():
    stored = decode(jpeg_radiograph(GREY))
    assert np.array_equal(stored.array, imagecodecs.jpeg8_decode(jpeg(GREY)))
    assert np.abs(stored.array.astype(int) - GREY).max() < 24
    assert stored.flags == (Flag.LOSSY,)


def test_an_image_that_was_lossy_before_is_flagged():
    assert decode(radiograph(GREY, LossyImageCompression="01")).flags == (Flag.LOSSY,)
    assert decode(radiograph(GREY, LossyImageCompression="00")).flags == ()


@pytest.mark.parametrize("fragments_per_frame", [1, 2, 7])
@pytest.mark.parametrize("has_bot", [False, True])
def test_fragments_and_offset_table_do_not_matter_for_one_frame(fragments_per_frame, has_bot):
    """Trap 19."""
    dataset = jpeg_radiograph(GREY)
    dataset.PixelData = encapsulate(
        [jpeg(GREY)], fragments_per_frame=fragments_per_frame, has_bot=has_bot
    )
    assert np.array_equal(decode(dataset).array, decode(jpeg_radiograph(GREY)).array)


def test_padding_after_the_end_marker():
    for padding in (b"\0", b"\0\0\0"):
        dataset = jpeg_radiograph(GREY, codestream=jpeg(GREY) + padding)
        assert decode(dataset).array.shape == GREY.shape


def test_every_cut_of_a_jpeg_fails():
    """Trap 17: libjpeg itself fills the rest with grey and reports success."""
    whole = jpeg(GREY)
    assert imagecodecs.jpeg8_decode(whole[: len(whole) * 6 // 10]).shape == GREY.shape
    reasons = {
        reason_of(jpeg_radiograph(GREY, codestream=whole[:length]))
        for length in range(1, len(whole))
    }
    assert reasons == {Reason.TRUNCATED_PIXEL_DATA, Reason.UNDECODABLE}


@pytest.mark.parametrize(
    "attributes",
    [
        {"Rows": 23},
        {"Columns": 21},
        {"Rows": 20, "Columns": 24},
        {"BitsStored": 7, "HighBit": 6},
        {"BitsAllocated": 16, "BitsStored": 12, "HighBit": 11},
        {"PixelRepresentation": 1},
    ],
)
def test_a_codestream_that_contradicts_the_header_is_not_believed(attributes):
    assert reason_of(jpeg_radiograph(GREY, **attributes)) is Reason.CODESTREAM_MISMATCH


@pytest.mark.parametrize(
    "codestream",
    [
        bytes(imagecodecs.jpeg8_encode(np.dstack([GREY] * 3), level=95)),
        bytes(imagecodecs.jpeg8_encode(scene(24, 20), bitspersample=12, level=95)),
        bytes(imagecodecs.jpeg8_encode(GREY, lossless=True)),
    ],
    ids=["three components", "12 bits", "lossless"],
)
def test_a_codestream_of_another_kind_is_not_believed(codestream):
    assert reason_of(jpeg_radiograph(GREY, codestream=codestream)) is Reason.CODESTREAM_MISMATCH


def without(codestream: bytes, marker: int) -> bytes:
    """The codestream with its first segment of that marker left out."""
    start = codestream.index(bytes([0xFF, marker]))
    return (
        codestream[:start]
        + codestream[start + 2 + struct.unpack(">H", codestream[start + 2 : start + 4])[0] :]
    )


@pytest.mark.parametrize(
    "codestream",
    [
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8" + b"\0" * 40 + b"\xff\xd9",
        b"BM not a jpeg \xff\xd9",
        without(jpeg(GREY), 0xC0),
        without(jpeg(GREY), 0xDB),
    ],
    ids=["empty", "zeros", "other format", "no frame header", "no quantisation table"],
)
def test_a_broken_codestream_is_undecodable(codestream):
    assert reason_of(jpeg_radiograph(GREY, codestream=codestream)) is Reason.UNDECODABLE


def test_markers_may_be_preceded_by_fill_bytes():
    whole = jpeg(GREY)
    start = whole.index(b"\xff\xc0")
    assert (
        decode(
            jpeg_radiograph(GREY, codestream=whole[:start] + b"\xff\xff" + whole[start:])
        ).array.shape
        == GREY.shape
    )


@pytest.mark.parametrize(
    "pixel_data",
    [jpeg(GREY), b"\xfe\xff\x00\xe0\x03\x00\x00\x00abc", encapsulate([jpeg(GREY)])[:18], b"\xfe"],
)
def test_broken_encapsulation_is_undecodable(pixel_data):
    assert (
        reason_of(under(radiograph(GREY, PixelData=pixel_data), JPEGBaseline8Bit))
        is Reason.UNDECODABLE
    )


# --- files
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transfer_syntax_uid", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.4.50"]
)
def test_a_phantom_survives_its_file(tmp_path, transfer_syntax_uid):
    dataset = make_instance(0, rows=40, columns=36, transfer_syntax_uid=transfer_syntax_uid)
    stored = decode(read_file(save(dataset, tmp_path / "pa.dcm")))
    assert stored.array.shape == (40, 36)
    assert np.array_equal(stored.array, decode(dataset).array)


def file_of(tmp_path: Path, dataset: Dataset, length: int | None = None) -> Path:
    content = io.BytesIO()
    dataset.save_as(content, enforce_file_format=True)
    path = tmp_path / "x.dcm"
    path.write_bytes(content.getvalue()[:length])
    return path


def test_a_file_that_is_no_dicom_is_a_corrupt_header(tmp_path):
    path = tmp_path / "x.dcm"
    for content in (
        b"",
        b"hello",
        bytes(200),
        b"\0" * 128 + b"DICM",
        b"\0" * 128 + b"DICM" + b"\xff" * 60,
    ):
        path.write_bytes(content)
        with pytest.raises(NotAnalysable) as refused:
            decode(read_file(path))
        assert refused.value.reason in (Reason.CORRUPT_HEADER, Reason.NO_PIXEL_DATA), content


def test_a_file_that_is_gone_is_not_the_image_s_fault(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "gone.dcm")


def test_a_deflated_file_is_inflated_up_to_its_limit(tmp_path):
    """100 MB of zeros deflate to 100 kB; nobody says so before."""
    bomb = under(radiograph(np.zeros((1000, 50_000), np.uint16)), DeflatedExplicitVRLittleEndian)
    bomb.file_meta.MediaStorageSOPClassUID, bomb.file_meta.MediaStorageSOPInstanceUID = (
        bomb.SOPClassUID,
        "1.2.3",
    )
    path = file_of(tmp_path, bomb)
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(NotAnalysable) as refused:
        read_file(path, maximum_bytes=1_000_000)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("transfer_syntax_uid", [ImplicitVRLittleEndian, JPEGBaseline8Bit])
def test_a_file_cut_anywhere_ends_with_a_reason(tmp_path, transfer_syntax_uid):
    dataset = make_instance(0, rows=24, columns=24, transfer_syntax_uid=transfer_syntax_uid)
    whole = file_of(tmp_path, dataset).stat().st_size
    seen: set[Any] = set()
    for length in range(0, whole - 16, 37):
        with pytest.raises(NotAnalysable) as refused:
            decode(read_file(file_of(tmp_path, dataset, length)))
        seen.add(refused.value.reason)
    assert Reason.CORRUPT_HEADER in seen
    assert seen <= {
        Reason.CORRUPT_HEADER,
        Reason.NO_PIXEL_DATA,
        Reason.TRUNCATED_PIXEL_DATA,
        Reason.UNDECODABLE,
    }


def test_an_intercept_of_minus_zero_is_zero():
    rescale = modality_of(radiograph(ramp(8, 8), 12, RescaleSlope="-1", RescaleIntercept="-0"))
    assert isinstance(rescale, Rescale)
    assert math.copysign(1.0, rescale.intercept) == 1.0, (
        "tables are kept by equal rescales, and must be the same to the bit"
    )
