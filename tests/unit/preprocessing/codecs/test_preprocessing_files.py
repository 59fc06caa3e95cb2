"""Files are mapped, not read: what the mapping must do by itself, and what it must not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
)

from hilum_preprocessing import NotAnalysable, Reason, decode, read_file
from tests.support.objects.encoders import encoded
from tests.support.objects.radiograph import radiograph, ramp, saved, scene, under

SYNTAXES = [
    ImplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    DeflatedExplicitVRLittleEndian,
]


def reason_of(path: Path) -> Reason:
    with pytest.raises(NotAnalysable) as refused:
        decode(read_file(path))
    return refused.value.reason


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<i2"])
@pytest.mark.parametrize("uid", SYNTAXES)
def test_each_uncompressed_syntax_from_a_file(tmp_path, uid, dtype):
    """Trap 20."""
    info = np.iinfo(dtype)
    array = np.linspace(info.min, info.max, 12 * 8).astype(dtype).reshape(12, 8)
    stored = decode(read_file(saved(tmp_path / "x.dcm", radiograph(array), uid)))
    assert np.array_equal(stored.array, array)
    assert stored.array.dtype == np.dtype(dtype)


def test_eight_bits_in_big_endian_words(tmp_path):
    """PS3.5 8.1.2: two pixels share a word of OW, and its bytes are swapped."""
    array = np.arange(30, dtype=np.uint8).reshape(5, 6)
    dataset = radiograph(array)
    dataset.PixelData = np.frombuffer(array.tobytes(), "<u2").astype(">u2").tobytes()
    assert np.array_equal(decode(under(dataset, ExplicitVRBigEndian)).array, array)
    dataset["PixelData"].VR, dataset.PixelData = "OB", array.tobytes()
    assert np.array_equal(decode(dataset).array, array)


@pytest.mark.parametrize("uid", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
def test_a_clean_frame_is_a_view_of_the_mapped_file(tmp_path, uid):
    path = saved(tmp_path / "x.dcm", radiograph(ramp(64, 48), bits_stored=12), uid)
    dataset = read_file(path)
    stored = decode(dataset)
    assert np.shares_memory(stored.array, np.frombuffer(dataset["PixelData"].value, np.uint8))
    path.unlink()
    assert np.array_equal(stored.array, ramp(64, 48)), "the mapping outlives the file's name"


def test_nothing_that_is_written_to_a_view_reaches_the_file(tmp_path):
    """Trap 40."""
    path = saved(tmp_path / "x.dcm", radiograph(ramp(64, 48), bits_stored=12))
    before = path.read_bytes()
    decode(read_file(path)).array[:] = 0
    assert path.read_bytes() == before


def test_masks_and_signs_on_the_mapped_path(tmp_path):
    """Traps 8 and 9: pydicom does both in pixel_array, which is not asked here."""
    array = ramp(16, 16)
    assert np.array_equal(
        decode(
            read_file(saved(tmp_path / "a.dcm", radiograph(array | 0xA000, bits_stored=12)))
        ).array,
        array,
    )
    signed = (array.astype(np.int16) - 2048).astype(np.int16)
    bare = (signed & 0x0FFF).astype(np.int16)
    assert np.array_equal(
        decode(read_file(saved(tmp_path / "b.dcm", radiograph(bare, bits_stored=12)))).array, signed
    )


@pytest.mark.parametrize("uid", [JPEGBaseline8Bit, JPEGLosslessSV1])
def test_encapsulated_pixels_from_a_file(tmp_path, uid):
    array = scene(40, 30, 8).astype(np.uint8)
    dataset = encoded(array, uid, 8)
    assert np.array_equal(
        decode(read_file(saved(tmp_path / "x.dcm", dataset))).array, decode(dataset).array
    )


def test_elements_behind_the_pixels_and_within_an_icon_do_not_confuse(tmp_path):
    dataset = radiograph(ramp(16, 16))
    icon = Dataset()
    icon.Rows, icon.Columns, icon.PixelData = 2, 2, b"\1\2\3\4"
    icon["PixelData"].VR = "OB"
    dataset.IconImageSequence = [icon]
    dataset.add_new(0xFFFCFFFC, "OB", bytes(200))
    assert np.array_equal(decode(read_file(saved(tmp_path / "x.dcm", dataset))).array, ramp(16, 16))


def test_the_header_is_what_pydicom_reads(tmp_path):
    path = saved(tmp_path / "x.dcm", radiograph(ramp(16, 16), WindowCenter="40", PatientID="4711"))
    read, expected = read_file(path), dcmread(path)
    assert list(read.keys()) == list(expected.keys())
    assert bytes(read.PixelData) == expected.PixelData


@pytest.mark.parametrize("cut", [1, 2, 9, 300])
def test_a_mapped_file_that_is_cut(tmp_path, cut):
    path = saved(tmp_path / "x.dcm", radiograph(ramp(16, 16)))
    path.write_bytes(path.read_bytes()[:-cut])
    assert reason_of(path) is Reason.TRUNCATED_PIXEL_DATA


def test_encapsulated_pixels_without_their_delimiter(tmp_path):
    path = saved(tmp_path / "x.dcm", encoded(scene(40, 30, 8).astype(np.uint8), JPEGLosslessSV1, 8))
    path.write_bytes(path.read_bytes()[:-8])
    assert reason_of(path) is Reason.TRUNCATED_PIXEL_DATA


@pytest.mark.parametrize("damage", ["cut", "damaged", "empty"])
def test_a_deflated_data_set_that_is_damaged(tmp_path, damage):
    """What is inflated has no checksum (RFC 1951).

    Damage that leaves the stream valid is not seen.
    """
    path = saved(tmp_path / "x.dcm", radiograph(scene(40, 30)), DeflatedExplicitVRLittleEndian)
    content = path.read_bytes()
    start = (
        132 + 12 + dcmread(path, stop_before_pixels=True).file_meta.FileMetaInformationGroupLength
    )
    damaged = {
        "cut": content[:-40],
        "damaged": content[:start] + b"\xff" + content[start + 1 :],
        "empty": content[:start],
    }[damage]
    path.write_bytes(damaged)
    assert reason_of(path) in (Reason.CORRUPT_HEADER, Reason.TRUNCATED_PIXEL_DATA)


def test_what_a_deflated_data_set_would_inflate_to_is_never_in_memory(tmp_path):
    """It is pydicom that reads the header, and pydicom inflates all of it, whatever its size."""
    path = saved(
        tmp_path / "x.dcm",
        radiograph(np.zeros((4000, 4000), np.uint16)),
        DeflatedExplicitVRLittleEndian,
    )
    tracemalloc.start()
    try:
        with pytest.raises(NotAnalysable) as error:
            read_file(path, maximum_bytes=1 << 20)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.value.reason is Reason.TOO_LARGE
    assert most < 8 << 20


def test_pixel_data_with_a_vr_whose_length_stands_elsewhere(tmp_path):
    """US has a length of 16 bits.

    Read as one of 32, it would be taken from the pixels, and the picture be shifted by two of them.
    """
    path = saved(tmp_path / "x.dcm", radiograph(ramp(64, 64, 16)), ExplicitVRLittleEndian)
    content = path.read_bytes()
    head = content.index(b"\xe0\x7f\x10\x00OW\0\0")
    shortened = (
        content[:head]
        + b"\xe0\x7f\x10\x00US"
        + (2 * 64 * 64).to_bytes(2, "little")
        + content[head + 12 :]
        + bytes(8)
    )
    path.write_bytes(shortened)
    assert reason_of(path) is Reason.CORRUPT_HEADER
