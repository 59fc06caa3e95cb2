"""Whose image a header says it is.

Read in one loop, and what that cannot read by the rules for every encoding.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilum.receive.headers.elements import EXPLICIT_LITTLE, values_in
from hilum.receive.headers.patient import _values, encodings_of, read_texts, text_of
from hilum.receive.statuses import CannotUnderstand

EXPLICIT = "1.2.840.10008.1.2.1"
CHARACTER_SET, ACCESSION_NUMBER, PATIENT_ID, ISSUER = 0x00080005, 0x00080050, 0x00100020, 0x00100021
TAGS = (ACCESSION_NUMBER, PATIENT_ID, ISSUER)
EMPTY_SEQUENCE = b"\x08\x00\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\xdd\xe0\0\0\0\0"


def element(tag: int, value: bytes, vr: bytes = b"LO") -> bytes:
    return struct.pack("<HH2sH", tag >> 16, tag & 0xFFFF, vr, len(value)) + value


ELEMENTS = st.builds(
    element,
    st.sampled_from((CHARACTER_SET, *TAGS, 0x00101000)),
    st.binary(max_size=4),
    st.sampled_from((b"LO", b"UT", b"ZZ")),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(ELEMENTS | st.just(EMPTY_SEQUENCE) | st.binary(max_size=9), max_size=6))
def test_the_loop_finds_what_the_rules_for_every_encoding_find(parts: list[bytes]) -> None:
    header = b"".join(parts)
    try:
        expected = _values(memoryview(header), EXPLICIT_LITTLE, TAGS, ISSUER)
    except CannotUnderstand:
        expected = None
    assert values_in(header, TAGS, ISSUER) == expected


@pytest.mark.parametrize(
    "names",
    [b"", b"ISO_IR 13 ", b"\\ISO 2022 IR 87 ", b"ISO_IR 192", b"utf_16", b"cp037 ", b"nonsense"],
)
@pytest.mark.parametrize("value", [b"A1", b"A1\0 ", b"~\\", b"\xc4b", b"\x1b$B0&", b""])
def test_a_text_that_is_alike_in_every_character_set_is_what_pydicom_decodes(
    names: bytes, value: bytes
) -> None:
    header = element(CHARACTER_SET, names, b"CS") + EMPTY_SEQUENCE + element(PATIENT_ID, value)
    assert read_texts(header, EXPLICIT, TAGS) == ["", text_of(value, encodings_of(names)), ""]
