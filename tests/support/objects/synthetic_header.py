"""Headers of radiographs with any values, valid or not, encoded byte for byte as a careless modality would."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydicom.charset import encode_string, python_encoding
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.uid import ExplicitVRLittleEndian

from hilum.domain import Instance

SOP_CLASS: Final = "1.2.840.10008.5.1.4.1.1.1"
UIDS: Final = {
    "SOPClassUID": SOP_CLASS,
    "SOPInstanceUID": "1.2.3",
    "StudyInstanceUID": "1.2",
    "SeriesInstanceUID": "1.3",
}
_LONG: Final = frozenset(
    {"OB", "OW", "SQ", "UC", "UN", "UR", "UT"}
)  # PS3.5 7.1.2: these have a length of 32 bits


def instance_with(header: bytes) -> Instance:
    """A stored instance with this header."""
    uids = (UIDS["SOPInstanceUID"], SOP_CLASS, UIDS["StudyInstanceUID"], UIDS["SeriesInstanceUID"])
    return Instance(
        *uids, ExplicitVRLittleEndian, "1.dcm", 1, "d", "p", 0.0, "MOD1", "HILUM", header, id=1
    )


def encoded_header(values: Mapping[str, Any]) -> bytes:
    """Explicit VR Little Endian.

    `name`: (Specific Character Set, name in it), unless PatientName says something else; None:
    missing.
    """
    character_set, name = values["name"]
    rest = {key: value for key, value in values.items() if key != "name" and value is not None}
    texts = {
        **UIDS,
        "Modality": "CR",
        "SpecificCharacterSet": character_set,
        "PatientName": name,
        **rest,
    }
    parts = sorted((int(tag_for_keyword(key) or 0), key, value) for key, value in texts.items())
    return b"".join(
        _element(tag, dictionary_VR(tag), value, character_set) for tag, _, value in parts
    )


def _element(tag: int, vr: str, value: str, character_set: str) -> bytes:
    content = _content(vr, value, character_set)
    content += (b"\0" if vr == "UI" else b" ") * (len(content) % 2)
    head = (tag >> 16).to_bytes(2, "little") + (tag & 0xFFFF).to_bytes(2, "little") + vr.encode()
    length = (
        b"\0\0" + len(content).to_bytes(4, "little")
        if vr in _LONG
        else len(content).to_bytes(2, "little")
    )
    return head + length + content


def _content(vr: str, value: str, character_set: str) -> bytes:
    if vr == "SQ":
        return bytes.fromhex(value)
    if vr in ("US", "SS", "UL", "SL"):
        return value.encode("latin-1")
    return _text(vr, value, list(_encodings(character_set)))


def _encodings(character_set: str) -> Iterator[str]:
    for term in character_set.split("\\"):
        yield python_encoding.get(term, "iso8859")


def _text(vr: str, value: str, encodings: list[str]) -> bytes:
    """In the character set; what that cannot say stands there in UTF-8, as careless devices do."""
    try:
        if "iso_ir_58" in encodings:
            return re.sub(r"[^\0-\x7f]+", lambda word: "\x1b$)A" + word[0], value).encode(
                "gb2312"
            )  # PS3.5 K.2; pydicom writes no escapes
        if vr == "PN":
            return b"=".join(encode_string(part, encodings) for part in value.split("="))
        return encode_string(value, encodings)
    except (UnicodeError, LookupError):
        return value.encode()
