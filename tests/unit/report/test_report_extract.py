"""The short way to what documents take from a header leads where that of the reference builder does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydicom.datadict import dictionary_VR, keyword_for_tag
from pydicom.multival import MultiValue
from pydicom.tag import BaseTag
from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.dicom.elements import places
from hilum.domain import Instance
from hilum.errors import NotAnalysed
from hilum.report.headers.header import CHARACTER_SET, read_descriptors, read_header
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.template import extract
from hilum.report.template.extract import Extract
from testing.phantoms.phantom import make_instance
from tests.support.objects.drawn_headers import HEADERS, localised
from tests.support.objects.synthetic_header import encoded_header, instance_with
from tests.support.reports.results import instance_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
TAGS = sorted(extract._OF_FIRST.keys() - {CHARACTER_SET})
LONG = (b"OB", b"SQ", b"UN", b"UT")
CHARACTER_SETS = (
    *(
        b"",
        b"ISO_IR 100",
        b"ISO_IR 192",
        b"GB18030",
        b"\\ISO 2022 IR 149",
        b"ISO 2022 IR 6\\ISO 2022 IR 87",
        b"\\ISO 2022 IR 58",
    ),
    *(
        b"ISO_IR 999",
        b"ISO-IR 100",
        b"utf8",
        b"a\0b",
        b" ",
        b"\\",
        b"ISO_IR 192\\ISO_IR 100",
        b"\xff",
        b"\\\\",
    ),
)
PLAUSIBLE = (
    # texts, names, codes
    *(
        b"",
        b"Thorax",
        b" lead",
        b"~",
        b"a\r\nb",
        b"a\0",
        b"\x1b$B",
        b"\xc4rger",
        b"A1\x07B",
        b"x" * 17,
        b"x" * 65,
        b"x" * 1025,
        b"x" * 65534,
    ),
    *(
        b"A^B^C",
        b"A=B",
        b"A=B=C=D",
        b"a\\b",
        b"\\",
        b"L\\F",
        b"L\\F\\X",
        b"l\\f",
        b"M",
        b"X",
        b"YES",
        b"NO",
        b"maybe",
    ),
    # dates, times, ages, zones
    *(
        b"20260105",
        b"20240229",
        b"20260229",
        b"20260431",
        b"20261231",
        b"00000101",
        b"2026.01.05",
        b"20260105083000.5+0100",
        b"2026",
    ),
    *(b"083000", b"08:30", b"235959.123456", b"25", b"062Y", b"62", b"+0100"),
    # numbers and others
    *(
        b"1.80",
        b"-7",
        b"+.5",
        b"1_0",
        b"1e5",
        b"nan",
        b"9" * 17,
        b"1234567.1234567",
        b"-1234567.1234567",
        b"0.2\\0.2",
        b"0.2 \\ 0.2",
    ),
    *(
        b"\x00\x02",
        b"\x00",
        b"\0\0\0\0",
        b"\x01\x00",
        b"\xfe\xff\x00\xe0\x00\x00\x00\x00",
        b"1.2.3",
    ),
)


@st.composite
def elements(draw: st.DrawFn) -> tuple[int, bytes, bytes]:
    """Tag, VR, value: of an attribute that documents take, mostly as it should be."""
    tag = draw(st.sampled_from(TAGS))
    own = dictionary_VR(tag).encode()
    vr = draw(
        st.just(own)
        | st.just(own)
        | st.sampled_from((b"LO", b"CS", b"UN", b"US", b"SQ", b"DA", b"UT"))
    )
    printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20).map(
        str.encode
    )
    value = draw(st.sampled_from(PLAUSIBLE) | printable | st.binary(max_size=12))
    return tag, vr, value + draw(st.sampled_from((b"", b" ", b"\0"))) if len(value) % 2 else value


def encoded(tag: int, vr: bytes, value: bytes) -> bytes:
    """As it stands, also of an odd length."""
    length = (
        b"\0\0" + len(value).to_bytes(4, "little")
        if vr in LONG
        else len(value).to_bytes(2, "little")
    )
    return (
        (tag >> 16).to_bytes(2, "little")
        + (tag & 0xFFFF).to_bytes(2, "little")
        + vr
        + length
        + value
    )


def outcome(take: Callable[[], Extract]) -> Any:
    """What can be compared: pydicom's numbers become the text that they were."""
    try:
        taken = take()
    except NotAnalysed as error:
        return str(error)
    return dataclasses.replace(
        taken, said={name: _plain(value) for name, value in taken.said.items()}
    )


def _plain(value: Any) -> Any:
    if isinstance(value, MultiValue | list):
        return [str(item) for item in value]
    return value if isinstance(value, int) else str(value)


def agree(instance: Instance) -> None:
    def long_way() -> Extract:
        clean = read_header(instance)
        with quietly():
            return extract.extract_of(clean)

    def long_way_of_others() -> Extract:
        clean = read_descriptors(instance)
        with quietly():
            return extract._of_ledger(instance, extract._taken(clean, extract._OF_OTHERS))

    assert outcome(lambda: extract.extract(instance)) == outcome(long_way)
    assert outcome(lambda: extract.further_extract(instance)) == outcome(long_way_of_others)


@settings(
    max_examples=500,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(elements(), max_size=8),
    st.none() | st.sampled_from(CHARACTER_SETS),
    st.sampled_from((b"CS", b"CS", b"CS", b"LO", b"SQ")),
)
@example([(0x00101010, b"AS", b"\xd9\xa1Y")], b"ISO_IR 192", b"CS")
def test_any_elements(
    found: list[tuple[int, bytes, bytes]], character_set: bytes | None, vr: bytes
) -> None:
    first = (
        b""
        if character_set is None
        else encoded(CHARACTER_SET, vr, character_set + b" " * (len(character_set) % 2))
    )
    agree(instance_with(first + b"".join(encoded(*element) for element in found)))


@pytest.mark.parametrize("tag", TAGS, ids=lambda tag: keyword_for_tag(BaseTag(tag)))
def test_every_plausible_value_of_every_attribute(tag: int) -> None:
    for value in PLAUSIBLE:
        agree(
            instance_with(
                encoded(tag, dictionary_VR(tag).encode(), value + b" " * (len(value) % 2))
            )
        )


@pytest.mark.parametrize("vr", [b"CS", b"LO", b"SQ", b"US", b"DS"])
@pytest.mark.parametrize("character_set", CHARACTER_SETS)
def test_a_character_set_that_pydicom_cannot_read_costs_the_header(
    character_set: bytes, vr: bytes
) -> None:
    first = encoded(CHARACTER_SET, vr, character_set + b" " * (len(character_set) % 2))
    agree(instance_with(first + encoded(0x00100020, b"LO", b"A1")))


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(HEADERS)
def test_headers_as_hospitals_send_them(header: dict[str, Any]) -> None:
    agree(instance_with(encoded_header(localised(header))))


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=120),
    st.sampled_from((ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian, "1.2.3")),
)
def test_any_bytes(raw: bytes, syntax: str) -> None:
    agree(dataclasses.replace(instance_with(raw), transfer_syntax_uid=syntax))


@pytest.mark.parametrize(
    "syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian]
)
@pytest.mark.parametrize("modality", ["DX", "CR", "SC"])
def test_a_radiograph(modality: Any, syntax: Any) -> None:
    dataset = make_instance(3, modality=modality, rows=16, columns=16)
    dataset.file_meta.TransferSyntaxUID = syntax
    agree(instance_of(dataset))


def test_of_an_ordinary_radiograph_nothing_is_left_to_pydicom() -> None:
    header = instance_of(make_instance(3, rows=16, columns=16)).header
    found = places(header, extract._OF_FIRST)
    assert found is not None
    del found[CHARACTER_SET]
    assert extract._settled(header, found, extract._OF_FIRST)[2] == {}
