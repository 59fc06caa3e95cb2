"""The index of elements: what it finds is there, and what it refuses is broken."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filereader import read_dataset
from pydicom.filewriter import write_dataset

from hilum_preprocessing.header import element_index
from hilum_preprocessing.header.element_index import (
    END,
    EXPLICIT_BIG,
    EXPLICIT_LITTLE,
    IMPLICIT_LITTLE,
    BrokenDataSet,
    Cursor,
    Element,
    Encoding,
    index,
    plain_run,
)
from hilum_preprocessing.header.structure import TooComplex
from testing.phantoms import phantom

ENCODINGS = (EXPLICIT_LITTLE, IMPLICIT_LITTLE, EXPLICIT_BIG)
TAGS = (0x00080005, 0x00080050, 0x00100020, 0x00100021, 0x7FE00010)
VRS = [b"LO", b"UT", b"SQ", b"UN", b"ZZ"]
UNDEFINED = 0xFFFFFFFF


def element(tag: int, vr: bytes, value: bytes, length: int | None, encoding: Encoding) -> bytes:
    """One element; `length` None: the value's."""
    order = encoding.byte_order
    head = struct.pack(f"{order}HH", tag >> 16, tag & 0xFFFF)
    count = len(value) if length is None else length
    if encoding.is_implicit:
        return head + struct.pack(f"{order}L", count) + value
    if vr in (b"UT", b"SQ", b"UN"):
        return head + vr + b"\0\0" + struct.pack(f"{order}L", count) + value
    return head + vr + struct.pack(f"{order}H", count & 0xFFFF) + value


@st.composite
def data_sets(draw: st.DrawFn) -> tuple[bytes, Encoding]:
    """Elements, items, delimiters and nonsense, one after the other."""
    encoding = draw(st.sampled_from(ENCODINGS))
    items = st.tuples(st.sampled_from((0xE000, 0xE00D, 0xE0DD)), st.sampled_from((0, 8, UNDEFINED)))
    parts = st.builds(
        element,
        st.sampled_from(TAGS),
        st.sampled_from(VRS),
        st.binary(max_size=4),
        st.sampled_from((None, None, None, 3, UNDEFINED)),
        st.just(encoding),
    )
    delimiters = items.map(lambda it: struct.pack(f"{encoding.byte_order}HHL", 0xFFFE, *it))
    drawn = draw(st.lists(parts | delimiters | st.binary(max_size=9), max_size=8))
    return b"".join(drawn), encoding


def one_by_one(*asked: object) -> dict[int, Element]:
    """The index without its run: every element gets a closer look."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(element_index, "plain_run", lambda *_: ())
        return index(*asked)  # type: ignore[arg-type]


def outcome(find: Callable[..., dict[int, Element]], *asked: object) -> dict[int, Element] | str:
    """What is found, or why not."""
    try:
        return find(*asked)
    except BrokenDataSet as error:
        return str(error)


@settings(max_examples=400, deadline=None)
@given(drawn=data_sets(), stop=st.sampled_from((END, 0x00100021)))
@example(drawn=(b"", EXPLICIT_LITTLE), stop=END)
def test_the_index_finds_what_a_look_at_each_element_finds(
    drawn: tuple[bytes, Encoding], stop: int
) -> None:
    data, encoding = drawn
    assert outcome(index, data, encoding, TAGS, stop) == outcome(
        one_by_one, data, encoding, TAGS, stop
    )


@settings(max_examples=400, deadline=None)
@given(drawn=data_sets() | st.tuples(st.binary(max_size=400), st.sampled_from(ENCODINGS)))
def test_places_lie_within_the_bytes_or_the_bytes_are_refused(
    drawn: tuple[bytes, Encoding],
) -> None:
    data, encoding = drawn
    try:
        found = index(data, encoding, range(END))
    except (BrokenDataSet, TooComplex):
        return
    for tag, place in found.items():
        end = len(data) if place.end is None else place.end
        assert place.tag == tag
        assert 0 <= place.start < place.value <= end <= len(data)


@settings(max_examples=300, deadline=None)
@given(drawn=data_sets() | st.tuples(st.binary(max_size=400), st.sampled_from(ENCODINGS)))
def test_a_run_ends_with_the_data_or_before_a_closer_look(drawn: tuple[bytes, Encoding]) -> None:
    data, encoding = drawn
    cursor = Cursor()
    places = list(plain_run(data, cursor, encoding, None, END))
    assert 0 <= cursor.position <= len(data)
    assert [place[2] for place in places] == sorted({place[2] for place in places})
    if cursor.position == len(data):
        assert all(place[4] <= len(data) for place in places)


def test_the_stop_of_an_unsorted_data_set_is_that_tag_alone() -> None:
    parts = [(0x00100021, b"B"), (0x00080050, b"A"), (0x00080005, b"C")]
    data = b"".join(element(tag, b"LO", v, None, EXPLICIT_LITTLE) for tag, v in parts)
    assert list(index(data, EXPLICIT_LITTLE, TAGS, 0x00080050)) == []
    unsorted = index(data, EXPLICIT_LITTLE, TAGS, 0x00080050, is_ordered=False)
    assert list(unsorted) == [0x00100021, 0x00080050]


def test_of_a_tag_that_stands_twice_the_last_place_counts() -> None:
    data = b"".join(element(TAGS[2], b"LO", v, None, EXPLICIT_LITTLE) for v in (b"A1", b"B2"))
    assert index(data, EXPLICIT_LITTLE, TAGS)[TAGS[2]].start == len(data) // 2


def test_more_elements_than_a_header_may_have_are_refused() -> None:
    data = element(0x00091001, b"LO", b"", None, EXPLICIT_LITTLE) * 11
    assert index(data, EXPLICIT_LITTLE, (), most=11) == {}
    with pytest.raises(TooComplex):
        index(data, EXPLICIT_LITTLE, (), most=10)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["explicit", "implicit", "big endian"])
@pytest.mark.parametrize("is_undefined", [False, True])
def test_values_are_those_that_pydicom_reads(encoding: Encoding, *, is_undefined: bool) -> None:
    image = phantom.make_instance(rows=8, columns=8)
    item = Dataset()
    item.CodeValue, item.CodeMeaning = "R-10214", "postero-anterior"
    image.ViewCodeSequence = [item, Dataset()]
    image["ViewCodeSequence"].is_undefined_length = is_undefined
    target = DicomBytesIO()
    target.is_implicit_VR = encoding.is_implicit
    target.is_little_endian = encoding.byte_order == "<"
    write_dataset(target, image)
    data = target.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = read_dataset(io.BytesIO(data), encoding.is_implicit, encoding.byte_order == "<")
    raw = {int(tag): theirs.get_item(tag) for tag in theirs.keys()}  # noqa: SIM118 - without converting
    found = index(data, encoding, range(END))
    assert list(found) == list(raw)
    for tag, place in found.items():
        if place.end is not None:
            assert data[place.value : place.end] == (raw[tag].value or b"")
