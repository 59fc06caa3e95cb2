"""Headers of 16 MiB at most that would make a reader create millions of objects, or nest for ever.

Each a valid object otherwise.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydicom.uid import (
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

_HEADER_BYTES: Final = (16 << 20) - 4096  # within what a listener reads
_MANY: Final = _HEADER_BYTES // 8
_EMPTY_ITEM: Final = struct.pack("<HHL", 0xFFFE, 0xE000, 0)
_OPEN_ITEM: Final = struct.pack("<HHL", 0xFFFE, 0xE000, 0xFFFFFFFF)
_ITEM_END: Final = struct.pack("<HHL", 0xFFFE, 0xE00D, 0)
_SEQUENCE_END: Final = struct.pack("<HHL", 0xFFFE, 0xE0DD, 0)
_UNDEFINED: Final = 0xFFFFFFFF
VIEW_CODES: Final = 0x00540220  # View Code Sequence, which is read of every image
PATIENT_IDS: Final = 0x00101002  # Other Patient IDs Sequence, which is read for every report
_PRIVATE: Final = 0x00091010
CHARACTER_SET: Final = 0x00080005


class Bomb(NamedTuple):
    """What is put into a header: an encoded element, or many of them."""

    tag: int
    content: bytes
    transfer_syntax_uid: str = ExplicitVRLittleEndian


def explicit(tag: int, vr: bytes, value: bytes, length: int | None = None) -> bytes:
    """An element with a 32-bit length."""
    return (
        struct.pack(
            "<HH2s2xL", tag >> 16, tag & 0xFFFF, vr, len(value) if length is None else length
        )
        + value
    )


def implicit(tag: int, value: bytes, length: int | None = None) -> bytes:
    """The same in implicit VR."""
    return (
        struct.pack("<HHL", tag >> 16, tag & 0xFFFF, len(value) if length is None else length)
        + value
    )


def _items(count: int = _MANY) -> bytes:
    return _EMPTY_ITEM * count


def _nested(depth: int) -> bytes:
    """Sequences of defined length, each within the item of another."""
    heads = (
        explicit(VIEW_CODES, b"SQ", b"", 20 * left + 8)
        + struct.pack("<HHL", 0xFFFE, 0xE000, 20 * left)
        for left in range(depth, -1, -1)
    )
    return b"".join(heads)


def _nested_for_ever(depth: int = 300_000) -> bytes:
    opening = explicit(_PRIVATE, b"SQ", _OPEN_ITEM, _UNDEFINED)
    return opening * depth + (_ITEM_END + _SEQUENCE_END) * depth


def _patients(count: int) -> bytes:
    return explicit(PATIENT_IDS, b"SQ", _items(count))


BOMBS: Final[Mapping[str, Callable[[], Bomb]]] = {
    "empty items": lambda: Bomb(
        VIEW_CODES, explicit(VIEW_CODES, b"SQ", _items() + _SEQUENCE_END, _UNDEFINED)
    ),
    "empty items of a defined length": lambda: Bomb(
        VIEW_CODES, explicit(VIEW_CODES, b"SQ", _items())
    ),
    "empty items for the report": lambda: Bomb(PATIENT_IDS, _patients(_MANY)),
    "private empty items": lambda: Bomb(
        _PRIVATE, explicit(_PRIVATE, b"SQ", _items() + _SEQUENCE_END, _UNDEFINED)
    ),
    "empty items in UN": lambda: Bomb(
        _PRIVATE, explicit(_PRIVATE, b"UN", _items() + _SEQUENCE_END, _UNDEFINED)
    ),
    "empty items in UN of a defined length": lambda: Bomb(
        VIEW_CODES, explicit(VIEW_CODES, b"UN", _items())
    ),
    "implicit empty items": lambda: Bomb(
        VIEW_CODES, implicit(VIEW_CODES, _items()), ImplicitVRLittleEndian
    ),
    "items that are none": lambda: Bomb(
        VIEW_CODES, explicit(VIEW_CODES, b"SQ", bytes(_HEADER_BYTES))
    ),
    "private elements": lambda: Bomb(_PRIVATE, struct.pack("<HH2sH", 9, 0x1010, b"LO", 0) * _MANY),
    "implicit private elements": lambda: Bomb(
        _PRIVATE, implicit(_PRIVATE, b"") * _MANY, ImplicitVRLittleEndian
    ),
    "elements in one item": lambda: Bomb(
        VIEW_CODES,
        explicit(
            VIEW_CODES, b"SQ", _OPEN_ITEM + struct.pack("<HH2sH", 9, 0x1010, b"LO", 0) * (_MANY - 8)
        ),
    ),
    "deep": lambda: Bomb(_PRIVATE, _nested_for_ever()),
    "deep of defined lengths": lambda: Bomb(VIEW_CODES, _nested(50_000)),
    "values of a number": lambda: Bomb(
        0x00281050, implicit(0x00281050, b"1\\" * (_HEADER_BYTES // 2)), ImplicitVRLittleEndian
    ),
    "values of a text": lambda: Bomb(
        0x00080008, implicit(0x00080008, b"A\\" * (_HEADER_BYTES // 2)), ImplicitVRLittleEndian
    ),
    "values in UN": lambda: Bomb(
        0x00281050, explicit(0x00281050, b"UN", b"1\\" * (_HEADER_BYTES // 2))
    ),
    "words": lambda: Bomb(
        0x00280010, implicit(0x00280010, b"\1\2" * (_HEADER_BYTES // 2)), ImplicitVRLittleEndian
    ),
    "character sets": lambda: Bomb(
        CHARACTER_SET, implicit(CHARACTER_SET, b"\\" * _HEADER_BYTES), ImplicitVRLittleEndian
    ),
}


def bomb_in(bomb: Bomb, pixels: bytes = bytes(64)) -> bytes:
    """A DX data set around it; its own attributes are the smallest that an image is taken with."""
    is_implicit = bomb.transfer_syntax_uid == ImplicitVRLittleEndian
    short = implicit if is_implicit else _short
    whole = implicit if is_implicit else lambda tag, value: explicit(tag, b"OW", value)
    elements = {tag: short(tag, value) for tag, value in _ATTRIBUTES.items() if tag != bomb.tag}
    elements[bomb.tag] = bomb.content
    return b"".join(elements[tag] for tag in sorted(elements)) + whole(0x7FE00010, pixels)


def _text(value: str) -> bytes:
    return value.encode() + b"\0" * (len(value) % 2)


_ATTRIBUTES: Final[Mapping[int, bytes]] = {
    0x00080016: _text(DigitalXRayImageStorageForPresentation),
    0x00080018: _text("1.2.3.4"),
    0x00080060: b"DX",
    0x00080068: b"FOR PRESENTATION",
    0x00100020: b"P1",
    0x00185101: b"PA",
    0x0020000D: _text("1.2.3"),
    0x0020000E: _text("1.2.3.1"),
    0x00280002: b"\1\0",
    0x00280004: b"MONOCHROME2 ",
    0x00280010: b"\x08\0",
    0x00280011: b"\x08\0",
    0x00280100: b"\x08\0",
    0x00280101: b"\x08\0",
    0x00280102: b"\x07\0",
    0x00280103: b"\0\0",
}


def _short(tag: int, value: bytes) -> bytes:
    vr = {0x0008: b"CS", 0x0010: b"LO", 0x0018: b"CS", 0x0020: b"UI"}.get(tag >> 16, b"US")
    vr = {0x00080016: b"UI", 0x00080018: b"UI", 0x00280004: b"CS"}.get(tag, vr)
    return struct.pack("<HH2sH", tag >> 16, tag & 0xFFFF, vr, len(value)) + value


def calls_of(function: Callable[[], Any]) -> int:
    """Functions of Python that it calls until it ends, as it may.

    What a walk costs, whatever the machine.
    """
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
