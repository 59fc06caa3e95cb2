"""The reader of plain headers says what pydicom says, or nothing.

What it converts, pydicom converts to the same.
"""

from __future__ import annotations

import io
import mmap
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydicom import dcmread
from pydicom.dataelem import RawDataElement, convert_raw_data_element
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.tag import BaseTag, Tag
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGLSLossless,
    RLELossless,
)

from hilum_preprocessing.header.plain_header import read_plain_header
from hilum_preprocessing.header.plain_values import plain_value
from testing.phantoms import phantom

pytestmark = pytest.mark.filterwarnings("ignore")  # pydicom's, of what is damaged on purpose
PLAIN = [ExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGLSLossless, RLELossless]


def saved(
    folder: Path, uid: str = ExplicitVRLittleEndian, *, is_undefined: bool = False, **changes: Any
) -> Path:
    """A radiograph of 8 x 8 pixels with sequences, a private block, text beyond ASCII and empty values."""
    dataset = phantom.make_instance(
        rows=8,
        columns=8,
        overrides={"SpecificCharacterSet": "ISO_IR 192", "PatientName": "Äneas^李", **changes},
    )
    inner = Dataset()
    inner.CodeValue, inner.CodeMeaning = "R-10214", "Brustkorb, von vorn: größer"
    item = Dataset()
    item.ViewModifierCodeSequence, item.CodeValue = [inner], "399348003"
    dataset.ViewCodeSequence = [item, Dataset()]
    dataset.BodyPartExamined, dataset.PixelPaddingValue, dataset.ProtocolName = "", None, ""
    dataset.private_block(0x0019, "HILUM TEST", create=True).add_new(0x01, "UN", b"\1\2\3\4")
    for sequence in (dataset["ViewCodeSequence"], item["ViewModifierCodeSequence"]):
        sequence.is_undefined_length = is_undefined
    if uid in (JPEGLSLossless, RLELossless):
        dataset.PixelData = encapsulate([b"\xff\xd8\xff\xd9"])
    dataset.file_meta.TransferSyntaxUID = uid
    content = io.BytesIO()
    dataset.save_as(
        content,
        enforce_file_format=True,
        implicit_vr=uid == ImplicitVRLittleEndian,
        little_endian=uid != ExplicitVRBigEndian,
    )
    path = folder / "x.dcm"
    path.write_bytes(content.getvalue())
    return path


def plainly(path: Path) -> tuple[Dataset, int] | None:
    with path.open("rb") as file:
        return read_plain_header(file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


def by_pydicom(path: Path) -> tuple[Dataset, int]:
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dcmread(file, stop_before_pixels=True), file.tell()


def require_the_same_elements(ours: Dataset, theirs: Dataset) -> None:
    """pydicom has converted a few already.

    The character set, the length of the file meta, the Transfer Syntax.
    """
    assert list(ours.keys()) == list(theirs.keys())
    for tag in theirs.keys():  # noqa: SIM118 - iterating a data set converts
        expected = theirs.get_item(tag, keep_deferred=True)
        found = (
            ours.get_item(tag, keep_deferred=True)
            if isinstance(expected, RawDataElement)
            else ours[tag]
        )
        assert found == expected


def require_the_same(path: Path) -> None:
    found = plainly(path)
    assert found is not None
    (ours, place), (theirs, expected_place) = found, by_pydicom(path)
    assert place == expected_place
    require_the_same_elements(ours, theirs)
    require_the_same_elements(ours.file_meta, theirs.file_meta)
    assert ours.original_encoding == theirs.original_encoding
    assert ours.original_character_set == theirs.original_character_set


@pytest.mark.parametrize("uid", PLAIN)
def test_it_finds_what_pydicom_finds(tmp_path, uid):
    require_the_same(saved(tmp_path, uid))


@pytest.mark.parametrize(
    "character_set", ["ISO_IR 100", "ISO_IR 192", ["", "ISO 2022 IR 87"], None]
)
def test_sequences_of_undefined_length_in_every_character_set(tmp_path, character_set):
    path = saved(
        tmp_path, is_undefined=True, SpecificCharacterSet=character_set, PatientName="Doe^Jane"
    )
    require_the_same(path)
    found = plainly(path)
    assert found is not None
    assert found[0].ViewCodeSequence == by_pydicom(path)[0].ViewCodeSequence


@pytest.mark.parametrize("uid", [ExplicitVRBigEndian, DeflatedExplicitVRLittleEndian])
def test_other_encodings_are_left_to_pydicom(tmp_path, uid):
    assert plainly(saved(tmp_path, uid)) is None


def test_sequences_of_undefined_length_in_implicit_vr_are_left_to_pydicom(tmp_path):
    assert plainly(saved(tmp_path, ImplicitVRLittleEndian, is_undefined=True)) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"DICM", b"DICN"),
        (
            b"1.2.840.10008.1.2.1\0",
            b"1.2.840.10008.1.2\0\0\0",
        ),  # the header is explicit and says that it is implicit
        (
            b"1.2.840.10008.1.2.1\0",
            b"1.2.840.113619.5.2\0\0",
        ),  # private, and its pixels are big endian
        (b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.2\0"),
        (b"\x08\x00\x60\x00CS", b"\x08\x00\x60\x00XX"),
        (b"\x08\x00\x60\x00CS", b"\xfe\xff\x0d\xe0CS"),  # an item ends where none has begun
        (b"\x08\x00\x60\x00CS\x02\x00", b"\x08\x00\x60\x00CS\xff\xff"),  # longer than the file
        (b"\x02\x00\x00\x00UL\x04\x00", b"\x02\x00\x00\x00UL\x03\x00"),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_pydicom(tmp_path, old, new):
    path = saved(tmp_path)
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    assert plainly(path) is None


def test_a_file_without_pixels_is_left_to_pydicom(tmp_path):
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: content.index(b"\xe0\x7f\x10\x00")])
    assert plainly(path) is None


@given(
    damage=st.lists(st.tuples(st.integers(128, 1500), st.integers(0, 255)), min_size=1, max_size=4),
    uid=st.sampled_from(PLAIN),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_of_a_damaged_header_it_says_what_pydicom_says_or_nothing(tmp_path, damage, uid):
    path = saved(tmp_path, uid, is_undefined=True)
    content = bytearray(path.read_bytes())
    for place, value in damage:
        content[place] = value
    path.write_bytes(content)
    if plainly(path) is not None:
        require_the_same(path)


VALUES = {
    "PatientAge": "AS",
    "Modality": "CS",
    "PatientOrientation": "CS",
    "StudyDate": "DA",
    "WindowCenter": "DS",
    "NumberOfFrames": "IS",
    "SeriesDescription": "LO",
    "PixelPaddingValue": "SS",
    "SOPClassUID": "UI",
    "Rows": "US",
    "LUTDescriptor": "US",
}
LETTERS = st.text("0123456789.-+eE\\ ADXY~\0äé^_", max_size=14).map(
    lambda text: text.encode("latin-1")
)


@given(
    keyword=st.sampled_from(sorted(VALUES)),
    value=LETTERS | st.binary(max_size=6),
    is_implicit=st.booleans(),
)
@example(keyword="WindowCenter", value=b"40\\400 ", is_implicit=False)
@example(keyword="NumberOfFrames", value=b"1 ", is_implicit=True)
@example(keyword="SeriesDescription", value=b"Thorax pa \\ lat ", is_implicit=False)
@example(keyword="PatientOrientation", value=b"L \\F ", is_implicit=True)
@example(keyword="SOPClassUID", value=b"1.2.840\0", is_implicit=False)
@example(keyword="Rows", value=b"\xff\xff", is_implicit=True)
@settings(max_examples=500, deadline=None)
def test_a_value_is_pydicoms_or_left_to_it(keyword, value, is_implicit):
    raw = RawDataElement(
        BaseTag(int(Tag(keyword))),
        None if is_implicit else VALUES[keyword],
        len(value),
        value,
        0,
        is_implicit,
        True,
    )
    found = plain_value(raw, keyword)
    if found is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = convert_raw_data_element(raw, encoding=["iso8859"]).value
    assert found == (list(expected) if isinstance(found, list) else expected)
    assert isinstance(expected, type(found)) or isinstance(found, list)


@pytest.mark.parametrize(
    ("keyword", "value", "expected"),
    [
        ("Modality", b"DX", "DX"),
        ("PixelPaddingValue", b"\xff\xff", -1),
        ("WindowWidth", b"400.5\\80 ", [400.5, 80.0]),
        ("NumberOfFrames", b"12", 12),
        ("Rows", b"\x00\x08", 2048),
        ("SOPClassUID", b"1.2.3\0", "1.2.3"),
    ],
)
def test_values_as_they_usually_are_need_no_pydicom(keyword, value, expected):
    vr = VALUES.get(keyword, "DS")
    assert (
        plain_value(
            RawDataElement(BaseTag(int(Tag(keyword))), vr, len(value), value, 0, False, True),
            keyword,
        )
        == expected
    )
