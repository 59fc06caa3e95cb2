"""The patient of an image: texts of a header in every character set."""

from __future__ import annotations

import struct

import pytest
from pydicom.charset import convert_encodings, decode_bytes

from hilum.receive.headers.patient import read_texts

EXPLICIT = "1.2.840.10008.1.2.1"
CHARACTER_SET, ACCESSION_NUMBER, PATIENT_ID, ISSUER = 0x00080005, 0x00080050, 0x00100020, 0x00100021
TAGS = (ACCESSION_NUMBER, PATIENT_ID, ISSUER)
EMPTY_SEQUENCE = b"\x08\x00\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\xdd\xe0\0\0\0\0"


def element(tag: int, value: bytes, vr: bytes = b"LO") -> bytes:
    return struct.pack("<HH2sH", tag >> 16, tag & 0xFFFF, vr, len(value)) + value


@pytest.mark.parametrize(
    "names",
    [b"", b"ISO_IR 13 ", b"\\ISO 2022 IR 87 ", b"ISO_IR 192", b"utf_16", b"cp037 ", b"nonsense"],
)
@pytest.mark.parametrize("value", [b"A1", b"A1\0 ", b"~\\", b"\xc4b", b"\x1b$B0&", b""])
def test_a_text_that_is_alike_in_every_character_set_is_what_pydicom_decodes(
    names: bytes, value: bytes
) -> None:
    header = element(CHARACTER_SET, names, b"CS") + EMPTY_SEQUENCE + element(PATIENT_ID, value)
    encodings = convert_encodings([name.strip() for name in names.decode().split("\\")])
    expected = decode_bytes(value, encodings, set()).strip(" \0")
    assert read_texts(header, EXPLICIT, TAGS) == ["", expected, ""]
