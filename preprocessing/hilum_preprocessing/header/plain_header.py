"""A fast reader of headers that are encoded exactly as the standard says. Torch-free.

It takes less than half the time of a reader that accepts all others, too. It finds the same as
pydicom, element by element; anything out of the ordinary is left to pydicom.
"""

from __future__ import annotations

import mmap
import re
from functools import lru_cache
from struct import Struct
from typing import BinaryIO, Final, cast

from pydicom.charset import convert_encodings, default_encoding
from pydicom.dataelem import (
    DataElement,
    RawDataElement,
    convert_raw_data_element,
    empty_value_for_VR,
)
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.filereader import read_sequence
from pydicom.tag import BaseTag
from pydicom.uid import ImplicitVRLittleEndian
from pydicom.valuerep import EXPLICIT_VR_LENGTH_32, VR

from hilum_preprocessing.header.elements import MALFORMED, interned
from hilum_preprocessing.header.structure import (
    MAXIMUM_ELEMENTS,
    TooComplex,
    require_bounded_value,
    too_many,
)

PIXELS: Final = frozenset({0x7FE00008, 0x7FE00009, 0x7FE00010})
"""Where a header ends: the elements that hold pixels."""

Elements = dict[BaseTag, RawDataElement | DataElement]
_NAMES: Final = {
    vr.value.encode(): vr.value for vr in VR if len(vr.value) == 2
}  # pydicom has words like "US or SS" among them
_LONG: Final = frozenset(vr.value for vr in EXPLICIT_VR_LENGTH_32)  # PS3.5 7.1.2
_EXPLICIT: Final = Struct("<HH2sH")
_PIXELS_GROUP: Final = 0x7FE0
_new: Final = (
    tuple.__new__
)  # a named tuple is made by a function in Python, which takes longer than to read the element
_LENGTH: Final = Struct("<L")
_IMPLICIT: Final = Struct("<HHL")  # PS3.5 7.1.3
_UNDEFINED: Final = 0xFFFFFFFF
_LONGEST_HEAD: Final = 12
_PLAIN_BYTES: Final = (
    64  # of a character set that is worth keeping: all that the standard knows, and some
)
_PREFIX: Final = b"DICM"
_META_BEGINS: Final = (
    b"\x02\x00\x00\x00UL\x04\x00"  # PS3.10 7.1: the length of its group comes first
)
_PREAMBLE_BYTES: Final = 128
_TRANSFER_SYNTAX: Final = interned(0x00020010)
_CHARACTER_SET: Final = interned(0x00080005)
# PS3.5 annex A: implicit and explicit little endian, RLE and all others that are encapsulated; no
# big endian, deflated or private one.
_LITTLE_ENDIAN: Final = re.compile(rb"1\.2\.840\.10008\.1\.2(\.1|\.5|\.4\.\d+)?")


def read_plain_header(file: BinaryIO, content: mmap.mmap | bytes) -> tuple[Dataset, int] | None:
    """The data set before its pixels, and where those begin in `content`.

    `content` is `file` or its start. None: pydicom must read it.
    """
    if content[_PREAMBLE_BYTES : _PREAMBLE_BYTES + 12] != _PREFIX + _META_BEGINS:
        return None
    try:
        return _read(file, content)
    except MALFORMED:  # pydicom meets the same, and says what becomes of it
        return None


def _read(file: BinaryIO, content: mmap.mmap | bytes) -> tuple[Dataset, int] | None:
    if (meta := _explicit(file, content, _PREAMBLE_BYTES + len(_PREFIX), is_meta=True)) is None:
        return None
    held, start = meta
    if (is_implicit := _is_implicit(held, content[start : start + 6])) is None:
        return None
    found = _implicit(content, start) if is_implicit else _explicit(file, content, start)
    return None if found is None else (_data_set(held, found[0], is_implicit=is_implicit), found[1])


def _is_implicit(meta: Elements, beginning: bytes) -> bool | None:
    """Whether the Transfer Syntax is implicit, or None.

    None: the beginning of the data set disagrees, or holds a command (PS3.7 6.3.1).
    """
    syntax = meta.get(_TRANSFER_SYNTAX)
    uid = (syntax.value or b"").rstrip(b"\0 ") if syntax is not None else b""
    if _LITTLE_ENDIAN.fullmatch(uid) is None or beginning[:2] == b"\0\0":
        return None
    is_implicit = bool(uid == ImplicitVRLittleEndian.encode())
    has_letters = all(0x40 < letter < 0x5B for letter in beginning[4:])  # as pydicom looks at it
    return is_implicit if is_implicit != has_letters else None


def _explicit(
    file: BinaryIO, content: mmap.mmap | bytes, position: int, *, is_meta: bool = False
) -> tuple[Elements, int] | None:
    """The elements of explicit VR before the pixels, or of the file meta group, and their end."""
    held: Elements = {}
    last = len(content) - _LONGEST_HEAD
    for _ in range(MAXIMUM_ELEMENTS):
        if position > last:
            return None
        group, number, name, length = _EXPLICIT.unpack_from(content, position)
        tag = interned(group << 16 | number)
        vr = _NAMES.get(name)
        value = position + 8
        if (group == _PIXELS_GROUP and tag in PIXELS) or (is_meta and group != 2):
            return held, position
        if vr is None or group == 0xFFFE:
            return None
        if vr in _LONG:
            (length,) = _LENGTH.unpack_from(content, value)
            value = value + 4
        if vr == "SQ" and length == _UNDEFINED:
            held[tag], position = _sequence(file, tag, value, held)
        elif (position := value + length) <= last:
            content_of = content[value:position] or _empty(vr)
            held[tag] = _new(
                RawDataElement, (tag, vr, length, content_of, value, False, True, True, False)
            )
    raise TooComplex(too_many())


def _implicit(content: mmap.mmap | bytes, position: int) -> tuple[Elements, int] | None:
    """The same of implicit VR; values of undefined length are pydicom's."""
    held: Elements = {}
    last = len(content) - _LONGEST_HEAD
    for _ in range(MAXIMUM_ELEMENTS):
        if position > last:
            return None
        group, number, length = _IMPLICIT.unpack_from(content, position)
        tag = interned(group << 16 | number)
        value = position + 8
        if group == _PIXELS_GROUP and tag in PIXELS:
            return held, position
        if group == 0xFFFE:
            return None
        if (position := value + length) <= last:
            content_of = content[value:position] or _empty(None)
            held[tag] = _new(
                RawDataElement, (tag, None, length, content_of, value, True, True, True, False)
            )
    raise TooComplex(too_many())


def _empty(vr: str | None) -> bytes | None:
    return cast("bytes | None", empty_value_for_VR(vr, raw=True))


def _sequence(file: BinaryIO, tag: BaseTag, start: int, held: Elements) -> tuple[DataElement, int]:
    """A sequence of undefined length, as pydicom reads it, and where it ends."""
    file.seek(start)
    items = read_sequence(
        file,
        is_implicit_VR=False,
        is_little_endian=True,
        bytelength=_UNDEFINED,
        encoding=_encodings(held),
    )
    return DataElement(tag, "SQ", items, start, is_undefined_length=True), file.tell()


def _encodings(held: Elements) -> str | list[str]:
    """Of the Specific Character Set, if it has come."""
    element = held.get(_CHARACTER_SET)
    if not isinstance(element, RawDataElement):
        return default_encoding
    require_bounded_value(element.value or b"", element.tag, "CS", is_implicit=False)
    read = _encodings_of if len(element.value or b"") <= _PLAIN_BYTES else _encodings_of.__wrapped__
    encodings = read(element._replace(value_tell=0))
    return encodings if isinstance(encodings, str) else list(encodings)


@lru_cache(64)
def _encodings_of(element: RawDataElement) -> str | list[str]:
    """A hospital has one or two of them; to convert one takes as long as to read seven elements."""
    return convert_encodings(convert_raw_data_element(element).value)


def _data_set(meta: Elements, held: Elements, *, is_implicit: bool) -> Dataset:
    dataset = Dataset(held)
    dataset.set_original_encoding(
        is_implicit, is_little_endian=True, character_encoding=_encodings(held)
    )
    dataset.file_meta = FileMetaDataset(meta)
    dataset.file_meta.set_original_encoding(
        is_implicit_vr=False, is_little_endian=True, character_encoding=default_encoding
    )
    return dataset
