"""Where a header ends and what it names, held against pydicom, and against bytes that are wrong in every way."""

from __future__ import annotations

import contextlib
import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.filewriter import write_dataset
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
)

from hilum.dicom.uid import is_like_uid, problem_of_uid
from hilum.receive.headers.header import (
    MAXIMUM_HEADER_BYTES,
    read_header,
)
from hilum.receive.statuses import COMMENT_LENGTH, CannotUnderstand, HeaderTooComplex
from hilum_preprocessing.header.structure import MAXIMUM_DEPTH
from testing.phantoms.phantom import make_instance
from tests.support.ledger.storing import data_set, element, uid_element

ENCODINGS = [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian]


def encode(dataset: Dataset, transfer_syntax_uid: str) -> bytes:
    from pydicom.filebase import DicomBytesIO

    stream = DicomBytesIO()
    stream.is_little_endian = transfer_syntax_uid != ExplicitVRBigEndian
    stream.is_implicit_VR = transfer_syntax_uid == ImplicitVRLittleEndian
    write_dataset(stream, dataset)
    return stream.getvalue()


def radiograph(**extra: Any) -> Dataset:
    dataset = make_instance(3, rows=16, columns=16)
    plain = Dataset()
    for item in dataset:
        plain[item.tag] = item
    for name, value in extra.items():
        setattr(plain, name, value)
    return plain


def nested(depth: int, *, is_undefined: bool) -> Dataset:
    inner = Dataset()
    inner.CodeValue = "1"
    for _ in range(depth):
        outer = Dataset()
        outer.ReferencedStudySequence = [inner]
        outer["ReferencedStudySequence"].is_undefined_length = is_undefined
        inner.is_undefined_length_sequence_item = is_undefined
        inner = outer
    return inner


def pixel_data_at(encoded: bytes, transfer_syntax_uid: str) -> int:
    """pydicom's opinion."""
    stream = BytesIO(encoded)
    read_dataset(
        stream,
        transfer_syntax_uid == ImplicitVRLittleEndian,
        transfer_syntax_uid != ExplicitVRBigEndian,
        stop_when=lambda tag, *_: tag == 0x7FE00010,
    )
    return stream.tell()


@pytest.mark.parametrize("syntax", ENCODINGS)
@pytest.mark.parametrize("is_undefined", [True, False])
def test_the_header_ends_where_pydicom_finds_pixel_data(syntax: str, is_undefined: bool) -> None:
    dataset = radiograph(ReferencedStudySequence=[nested(4, is_undefined=is_undefined), Dataset()])
    dataset["ReferencedStudySequence"].is_undefined_length = is_undefined
    encoded = encode(dataset, syntax)
    header = read_header(encoded, syntax)
    assert len(header.encoded) == pixel_data_at(encoded, syntax)
    assert header.sop_instance_uid == dataset.SOPInstanceUID
    assert header.sop_class_uid == dataset.SOPClassUID
    assert header.study_instance_uid == dataset.StudyInstanceUID
    assert header.series_instance_uid == dataset.SeriesInstanceUID
    assert encoded[header.pixels_start : header.pixels_end] == dataset.PixelData


def test_encapsulated_pixel_data_has_no_defined_end() -> None:
    encoded = encode(radiograph(), ExplicitVRLittleEndian)
    start = pixel_data_at(encoded, ExplicitVRLittleEndian)
    encapsulated = (
        encoded[:start] + b"\xe0\x7f\x10\0OB\0\0\xff\xff\xff\xff" + b"\xfe\xff\0\xe0\0\0\0\0"
    )
    header = read_header(encapsulated, JPEGBaseline8Bit)
    assert len(header.encoded) == start
    assert (header.pixels_start, header.pixels_end) == (start + 12, None)


def test_deflated_is_inflated_for_the_header() -> None:
    plain = data_set("1.2.3")
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    deflated = deflater.compress(plain) + deflater.flush()
    header = read_header(deflated, DeflatedExplicitVRLittleEndian)
    assert header == read_header(plain, ExplicitVRLittleEndian)
    with pytest.raises(CannotUnderstand, match="not deflated"):
        read_header(plain, DeflatedExplicitVRLittleEndian)


def test_a_deflated_bomb_is_inflated_no_further_than_a_header_may_be() -> None:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    bomb = deflater.compress(element(0x00090010, b"UN", bytes(200 << 20))) + deflater.flush()
    with pytest.raises(CannotUnderstand, match="More than 16 MiB"):
        read_header(bomb, DeflatedExplicitVRLittleEndian)


def test_without_pixel_data_the_header_is_everything() -> None:
    encoded = data_set("1.2.3")
    encoded = encoded[: pixel_data_at(encoded, ExplicitVRLittleEndian)]
    header = read_header(encoded, ExplicitVRLittleEndian)
    assert bytes(header.encoded) == encoded
    assert (header.pixels_start, header.pixels_end) == (None, None)


def test_pixel_data_may_be_truncated_but_the_header_may_not() -> None:
    encoded = data_set("1.2.3")
    start = pixel_data_at(encoded, ExplicitVRLittleEndian)
    assert len(read_header(encoded[: start + 20], ExplicitVRLittleEndian).encoded) == start
    with pytest.raises(CannotUnderstand, match="ends inside"):
        read_header(encoded[: start - 4], ExplicitVRLittleEndian)


@pytest.mark.parametrize("tag", [0x00080016, 0x00080018, 0x0020000D, 0x0020000E])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "is missing"),
        (b"", "is missing"),
        (b"\0\0", "is missing"),
        (b"1.2.x ", "not a valid"),
        (b"1" * 66, "over 64 characters"),
        (b"1.2\\1.3\0", "not a valid"),
    ],
)
def test_each_uid_must_be_there_and_valid(tag: int, value: bytes | None, problem: str) -> None:
    good = {0x00080016: b"1.2", 0x00080018: b"1.3", 0x0020000D: b"1.4", 0x0020000E: b"1.5"}
    parts = [
        element(key, b"UI", found)
        for key, found in {**good, tag: value}.items()
        if found is not None
    ]
    with pytest.raises(CannotUnderstand, match=problem) as refused:
        read_header(b"".join(parts), ExplicitVRLittleEndian)
    assert f"({tag >> 16:04X},{tag & 0xFFFF:04X})" in refused.value.comment
    assert len(refused.value.comment) <= COMMENT_LENGTH


def test_the_other_encoding_is_not_guessed() -> None:
    with pytest.raises(CannotUnderstand, match="not encoded in its Transfer Syntax"):
        read_header(encode(radiograph(), ImplicitVRLittleEndian), ExplicitVRLittleEndian)
    with pytest.raises(CannotUnderstand):
        read_header(encode(radiograph(), ExplicitVRLittleEndian), ImplicitVRLittleEndian)


def test_implicit_items_inside_an_explicit_data_set_are_walked() -> None:
    item = encode(nested(1, is_undefined=False), ImplicitVRLittleEndian)
    sequence = (
        b"\xfe\xff\0\xe0\xff\xff\xff\xff"
        + item
        + b"\xfe\xff\x0d\xe0\0\0\0\0"
        + b"\xfe\xff\xdd\xe0\0\0\0\0"
    )
    for vr in (b"SQ", b"UN"):
        private = b"\x09\0\x10\x10" + vr + b"\0\0\xff\xff\xff\xff" + sequence
        encoded = uid_element(0x00080016, "1.2") + uid_element(0x00080018, "1.3") + private
        encoded += uid_element(0x0020000D, "1.4") + uid_element(0x0020000E, "1.5")
        assert read_header(encoded, ExplicitVRLittleEndian).series_instance_uid == "1.5"


def test_no_depth_of_nesting_exhausts_the_stack() -> None:
    opening = b"\x08\0\x10\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\0\xe0\xff\xff\xff\xff"
    closing = b"\xfe\xff\x0d\xe0\0\0\0\0\xfe\xff\xdd\xe0\0\0\0\0"
    for depth in (MAXIMUM_DEPTH - 1, 300_000):
        encoded = opening * depth + closing * depth + data_set("1.2.3")
        if depth < MAXIMUM_DEPTH:
            assert read_header(encoded, ExplicitVRLittleEndian).sop_instance_uid == "1.2.3"
            continue
        with pytest.raises(HeaderTooComplex, match="Sequences more than 64 deep"):
            read_header(encoded, ExplicitVRLittleEndian)
    with pytest.raises(CannotUnderstand, match="ends inside a sequence"):
        read_header(opening * 5, ExplicitVRLittleEndian)


def test_an_unknown_value_representation_is_refused_because_pydicom_reads_past_it() -> None:
    strange = b"\x08\x00\x40\x11QQ\0\0" + struct.pack("<L", 40) + bytes(40)
    encoded = data_set("1.2.3.4")
    start = len(uid_element(0x00080016, "1.2.840.10008.5.1.4.1.1.1.1")) + len(
        uid_element(0x00080018, "1.2.3.4")
    )
    whole = encoded[:start] + strange + encoded[start:]
    assert "StudyInstanceUID" not in read_dataset(
        BytesIO(whole), is_implicit_VR=False, is_little_endian=True
    )
    with pytest.raises(
        CannotUnderstand, match=r"\(0008,1140\) has the unknown value representation QQ"
    ):
        read_header(whole, ExplicitVRLittleEndian)


def test_a_header_beyond_the_limit_is_refused_with_what_to_do() -> None:
    encoded = element(0x00090010, b"UN", bytes(MAXIMUM_HEADER_BYTES)) + data_set("1.2.3")
    with pytest.raises(CannotUnderstand, match="remove private data"):
        read_header(encoded, ExplicitVRLittleEndian)


def test_a_large_object_with_a_small_header_is_fine() -> None:
    encoded = data_set("1.2.3", pixels=bytes(MAXIMUM_HEADER_BYTES + 1000))
    header = read_header(encoded, ExplicitVRLittleEndian)
    assert header.pixels_end == len(encoded)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("1.2.840.10008", True),
        ("2.25.01", True),
        ("1", True),
        ("", False),
        ("1..2", False),
        (".1", False),
        ("1.", False),
        ("1.2 ", False),
        ("1.\u0663", False),
        ("1" * 65, False),
        ("../1", False),
        ("0", False),
        ("0.0", False),
        ("00", False),
        ("0.0.0.0", False),
        ("0.1", True),
        ("1.0", True),
        ("2.999.1", True),
        ("1.76.380.18.1", True),
        ("01.2.3", True),
        ("1.2.03", True),
        ("3.1.2", False),
        ("10.2.3", False),
        ("999.999.01.2026.1", False),
        ("1" * 20, False),
        ("1.2.3\0", False),
        (" 1.2.3", False),
        ("1.2.-3", False),
        ("1.2.3a", False),
        ("1,2,3", False),
    ],
)
def test_what_may_be_a_uid(text: str, good: bool) -> None:
    assert (problem_of_uid(text) is None) is good


@pytest.mark.parametrize("tag", [0x00080016, 0x00080018, 0x0020000D, 0x0020000E])
def test_what_begins_with_no_root_is_read_where_it_is_stored_and_refused_on_its_way_in(
    tag: int,
) -> None:
    """An earlier version has taken such objects: they stay readable."""
    uid = "999.999.01.7"
    encoded = b"".join(
        uid_element(each, uid if each == tag else "1.2.3")
        for each in (0x00080016, 0x00080018, 0x0020000D, 0x0020000E)
    )
    header = read_header(encoded, ExplicitVRLittleEndian)
    assert is_like_uid(uid)
    with pytest.raises(CannotUnderstand, match=r"UID \(.*\) must start with 0-2") as refused:
        header.require_uids()
    assert len(refused.value.comment) <= COMMENT_LENGTH


def test_what_is_wrong_with_a_uid_fits_into_an_error_comment_behind_any_name() -> None:
    for text in ("x", "9.1", "1" * 65):
        for name in (
            "Media Storage SOP Instance UID (0002,0003)",
            "Affected SOP Instance UID in the command",
        ):
            assert len(f"{name} {problem_of_uid(text)}") <= COMMENT_LENGTH


def read_or_refuse(encoded: bytes, syntax: str) -> None:
    """Whatever else it raises fails the test."""
    with contextlib.suppress(CannotUnderstand):
        header = read_header(encoded, syntax)
        assert is_like_uid(header.study_instance_uid)


SYNTAXES = st.sampled_from([*ENCODINGS, DeflatedExplicitVRLittleEndian])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), SYNTAXES)
def test_any_bytes_are_read_or_refused(encoded: bytes, syntax: str) -> None:
    read_or_refuse(encoded, syntax)


_VALID = {
    syntax: encode(radiograph(ReferencedStudySequence=[nested(3, is_undefined=True)]), syntax)
    for syntax in ENCODINGS
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ENCODINGS), st.data())
def test_a_damaged_data_set_is_read_or_refused(syntax: str, data: st.DataObject) -> None:
    damaged = bytearray(_VALID[syntax])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 5))
        damaged[position : position + 4] = struct.pack(
            "<L", data.draw(st.one_of(st.integers(0, 2**32 - 1), st.just(0xFFFFFFFF)))
        )
    read_or_refuse(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]), syntax)


@pytest.mark.parametrize("tag", [0x00080018, 0x0020000D, 0x0020000E])
@pytest.mark.parametrize(
    ("uid", "said"),
    [
        ("0.0", "is all zeros; fill it in"),
        ("", "is missing; fill it in"),
        ("1..2", "is not a valid UID"),
    ],
)
def test_a_uid_that_names_nothing_is_refused_and_the_sender_is_told_what_to_do(
    tag: int, uid: str, said: str
) -> None:
    encoded = b"".join(
        uid_element(each, uid if each == tag else "1.2.3")
        for each in (0x00080016, 0x00080018, 0x0020000D, 0x0020000E)
    )
    with pytest.raises(CannotUnderstand, match=said) as refused:
        read_header(encoded, ExplicitVRLittleEndian)
    assert len(refused.value.comment) <= COMMENT_LENGTH
