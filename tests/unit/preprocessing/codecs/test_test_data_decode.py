"""Every real file decodes to the array that its manifest states, or is refused for its own reason."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom import Dataset, dcmread

from hilum_preprocessing import Flag, NotAnalysable, Reason, decode, decode_frames, read_file

REFUSED = {
    "codecs_rg3/RG3_JPLY.dcm": None,  # pydicom's plug-ins refuse it, libjpeg-turbo reads it
    "oddities/jpegxl_multiframe.dcm": Reason.TRANSFER_SYNTAX_NOT_SUPPORTED,
    "oddities/truncated_pixeldata.dcm": Reason.TRUNCATED_PIXEL_DATA,
    "oddities/no_meta.dcm": Reason.CORRUPT_HEADER,
    "oddities/meta_missing_tsyntax.dcm": Reason.CORRUPT_HEADER,
    "oddities/bad_vr.dcm": Reason.CORRUPT_HEADER,
    "oddities/nested_private_sq.dcm": Reason.CORRUPT_HEADER,
}
LOSSLESS_RG3 = ("J2KR", "JLSL", "JPLL", "RLE", "UNC")


@pytest.fixture(scope="module")
def files(test_data: Path) -> dict[str, dict[str, Any]]:
    manifest = json.loads((test_data / "manifest.json").read_text())
    return {entry["file"].removeprefix("dicom/"): entry for entry in manifest["dicom"]}


@pytest.fixture(autouse=True)
def quiet():
    """Pydicom warns of what is odd in odd files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(
        np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    ).hexdigest()


def rg3(test_data: Path, coding: str) -> Dataset:
    return read_file(test_data / "dicom/codecs_rg3" / f"RG3_{coding}.dcm")


@pytest.mark.parametrize(
    "read", [read_file, lambda path: dcmread(path, force=True)], ids=["mapped", "pydicom"]
)
def test_every_file_that_decodes_gives_the_manifest_s_array(test_data, files, read):
    wrong = []
    decodable = [name for name, entry in files.items() if entry["expect"] == "decode"]
    for name in decodable:
        array, expected = (
            decode_frames(read(test_data / "dicom" / name)),
            files[name]["pydicom"]["decoded"],
        )
        if (list(array.shape), digest(array)) != (expected["shape"], expected["sha256_le"]):
            wrong.append(name)
    assert len(decodable) == 43
    assert wrong == []


def test_every_other_file_is_refused_for_its_own_reason(test_data, files):
    expected = {
        **REFUSED,
        **{
            name: Reason.NO_PIXEL_DATA
            for name, entry in files.items()
            if entry["expect"] == "no_pixels"
        },
    }
    assert set(expected) == {name for name, entry in files.items() if entry["expect"] != "decode"}
    assert {name: reason_of(test_data / "dicom" / name) for name in expected} == expected


def reason_of(path: Path) -> Reason | None:
    try:
        decode_frames(read_file(path))
    except NotAnalysable as error:
        return error.reason
    return None


def test_one_picture_in_eight_codings(test_data):
    reference = decode(rg3(test_data, "UNC")).array
    for coding in LOSSLESS_RG3:
        assert np.array_equal(decode(rg3(test_data, coding)).array, reference), coding
    for coding, levels in (("J2KI", 9), ("JLSN", 4)):
        assert (
            np.abs(decode(rg3(test_data, coding)).array.astype(int) - reference).max() == levels
        ), coding


def test_jpeg_extended_of_a_real_file(test_data):
    """Trap 48.

    Within the codec's loss, which is the 6.6:1 of 12-bit JPEG; values above Bits Stored are clamped
    and flagged.
    """
    reference = decode(rg3(test_data, "UNC")).array.astype(int)
    stored = decode(rg3(test_data, "JPLY"))
    difference = stored.array - reference
    assert np.sqrt((difference**2).mean()) < 2.6
    assert np.abs(difference).max() <= 48
    assert stored.array.max() == 1023
    assert stored.flags == (Flag.LOSSY, Flag.VALUES_CLAMPED)
