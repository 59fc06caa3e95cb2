"""A fast reader of headers that are encoded exactly as the standard says. Torch-free.

It takes less than half the time of a reader that accepts all others, too. It finds the same as
pydicom, element by element; anything out of the ordinary is left to pydicom.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
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

from hilum_preprocessing.header.element_index import (
    EXPLICIT_LITTLE,
    IMPLICIT_LITTLE,
    Cursor,
    Encoding,
    Place,
    element_at,
    plain_run,
    tag_at,
)
from hilum_preprocessing.header.elements import MALFORMED, interned
from hilum_preprocessing.header.part10 import DICM, GROUP_LENGTH, META_START, PREAMBLE_BYTES
from hilum_preprocessing.header.structure import require_bounded_value
from hilum_preprocessing.header.vr import LONG_VRS, SHORT_VRS

PIXELS: Final = frozenset({0x7FE00008, 0x7FE00009, 0x7FE00010})
"""Where a header ends: the elements that hold pixels."""

Elements = dict[BaseTag, RawDataElement | DataElement]
_NAMES: Final = {vr: vr.decode() for vr in SHORT_VRS | LONG_VRS} | {b"": None}
_META_GROUP: Final = 0x0002
_AFTER_META: Final = 0x00030000
_BEFORE_PIXELS: Final = 0x7FE00000
_ITEMS_GROUP: Final = 0xFFFE
# A named tuple is made by a function in Python, which takes longer than to read the element.
_new: Final = tuple.__new__
_UNDEFINED: Final = 0xFFFFFFFF
_LONGEST_HEAD: Final = 12
# Of a character set that is worth keeping: all that the standard knows, and some.
_PLAIN_BYTES: Final = 64
_TRANSFER_SYNTAX: Final = interned(0x00020010)
_CHARACTER_SET: Final = interned(0x00080005)
# PS3.5 annex A: implicit and explicit little endian, RLE and all others that are encapsulated; no
# big endian, deflated or private one.
_LITTLE_ENDIAN: Final = re.compile(rb"1\.2\.840\.10008\.1\.2(\.1|\.5|\.4\.\d+)?")


def read_plain_header(file: BinaryIO, content: mmap.mmap | bytes) -> tuple[Dataset, int] | None:
    """The data set before its pixels, and where those begin in `content`.

    `content` is `file` or its start. None: pydicom must read it.
    """
    if content[PREAMBLE_BYTES : PREAMBLE_BYTES + 12] != DICM + GROUP_LENGTH:
        return None
    try:
        return _read(file, content)
    except MALFORMED:  # pydicom meets the same, and says what becomes of it
        return None


def _read(file: BinaryIO, content: mmap.mmap | bytes) -> tuple[Dataset, int] | None:
    if (meta := _elements(file, content, META_START, EXPLICIT_LITTLE, is_meta=True)) is None:
        return None
    held, start = meta
    if (is_implicit := _is_implicit(held, content[start : start + 6])) is None:
        return None
    found = _elements(file, content, start, IMPLICIT_LITTLE if is_implicit else EXPLICIT_LITTLE)
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


def _elements(
    file: BinaryIO,
    content: mmap.mmap | bytes,
    position: int,
    encoding: Encoding,
    *,
    is_meta: bool = False,
) -> tuple[Elements, int] | None:
    """The elements before the pixels, or of the file meta group, and where they end.

    None: pydicom must read it, as with a sequence of undefined length in implicit VR.
    """
    held: Elements = {}
    cursor = Cursor(position)
    is_implicit = encoding.is_implicit
    stop = _AFTER_META if is_meta else _BEFORE_PIXELS
    last = len(content) - _LONGEST_HEAD
    places: Iterable[Place] = plain_run(content, cursor, encoding, None, stop)
    while True:
        for tag, vr, _, value, end in places:
            key = interned(tag)
            name = _NAMES[vr]
            raw = content[value:end] or _empty(name)
            fields = key, name, end - value, raw, value, is_implicit, True, True, False
            held[key] = _new(RawDataElement, fields)
        if cursor.position > last:
            return None
        tag = tag_at(content, cursor.position, encoding)
        if tag >> 16 != _META_GROUP if is_meta else tag in PIXELS:
            return held, cursor.position
        item = element_at(content, cursor.position, encoding)
        places = plain_run(content, cursor, encoding, None, stop)
        if item.end is None and item.vr == b"SQ":
            cursor.spend()
            key = interned(tag)
            held[key], cursor.position = _sequence(file, key, item.value, held)
        elif item.end is None or item.end > last or tag >> 16 == _ITEMS_GROUP:
            return None
        else:
            places = chain([(item.tag, item.vr, item.start, item.value, item.end)], places)
            cursor.position = item.end


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
    value = element.value or b""
    require_bounded_value(value, element.tag, "CS", is_implicit=False)
    read = _encodings_of if len(value) <= _PLAIN_BYTES else _encodings_of.__wrapped__
    encodings = read(element.VR, element.length, element.value, element.is_implicit_VR)
    return encodings if isinstance(encodings, str) else list(encodings)


@lru_cache(64)
def _encodings_of(
    vr: str | None,
    length: int,
    value: bytes | None,
    is_implicit: bool,
) -> str | list[str]:
    """A hospital has one or two of them; to convert one takes as long as to read seven elements."""
    element = RawDataElement(_CHARACTER_SET, vr, length, value, 0, is_implicit, True)  # noqa: FBT003
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
