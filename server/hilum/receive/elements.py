"""Data elements of an encoded data set: where each one lies, without decoding a value (PS3.5 chapter 7).

Iterative, so that no depth of nesting exhausts the stack; every way in which bytes can be wrong is `CannotUnderstand`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from pydicom.uid import ExplicitVRBigEndian, ImplicitVRLittleEndian

from hilum.receive.refusals import CannotUnderstand

_ITEM, _ITEM_END, _SEQUENCE_END = 0xFFFEE000, 0xFFFEE00D, 0xFFFEE0DD
_UNDEFINED = 0xFFFFFFFF
# PS3.5 7.1.2: these VRs have a 16-bit length; all others, those of the future included, a 32-bit one. pydicom, which reads the header
# once it is stored, knows no others, takes their length for a 16-bit one, and finds nothing of what follows: such objects are refused.
_SHORT_VRS = frozenset(b"AE AS AT CS DA DS DT FL FD IS LO LT PN SH SL SS ST TM UI UL US".split())
_LONG_VRS = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())
_VR = re.compile(rb"[A-Z]{2}")
# An element with a 16-bit length, the 32-bit length of the others, and the header of implicit VR (PS3.5 7.1.2, 7.1.3), by byte order.
_LAYOUTS = {order: (Struct(f"{order}HH2sH"), Struct(f"{order}L"), Struct(f"{order}HHL")) for order in "<>"}


@dataclass(frozen=True, slots=True)
class Encoding:
    """How data elements are written: `byte_order` as in struct."""

    is_implicit: bool
    byte_order: str


EXPLICIT_LITTLE = Encoding(is_implicit=False, byte_order="<")
_IMPLICIT_LITTLE = Encoding(is_implicit=True, byte_order="<")
_EXPLICIT_BIG = Encoding(is_implicit=False, byte_order=">")


class Element(NamedTuple):
    """A data element's place: its tag at `start`, its value at `value`. `length` None: undefined."""

    tag: int
    vr: bytes
    start: int
    value: int
    length: int | None


def encoding_of(transfer_syntax_uid: str) -> Encoding:
    """PS3.5 annex A: everything is explicit little endian, except for two."""
    if transfer_syntax_uid == ImplicitVRLittleEndian:
        return _IMPLICIT_LITTLE
    return _EXPLICIT_BIG if transfer_syntax_uid == ExplicitVRBigEndian else EXPLICIT_LITTLE


def elements(data: memoryview, encoding: Encoding, wanted: frozenset[int] | None = None) -> Iterator[Element]:
    """The elements of the top level, or the `wanted` ones and perhaps others.

    A value is not looked at before the caller asks for the next element.
    """
    position = 0
    while position < len(data):
        if wanted is not None and not encoding.is_implicit:
            position = _first_wanted(data, position, wanted, _LAYOUTS[encoding.byte_order][0])
        element = _element(data, position, encoding)
        yield element
        position = _end_of(data, element, encoding)
        if position > len(data):
            raise CannotUnderstand(f"The data set ends inside {name_of(element.tag)}")


def first_item(data: memoryview, sequence: Element, encoding: Encoding) -> Iterator[Element]:
    """The elements of a sequence's first item; nothing where it has none."""
    inside = _inside(sequence, encoding)
    if sequence.length == 0 or _delimiter(data, sequence.value, inside)[0] != _ITEM:
        return
    length, position = _delimiter(data, sequence.value, inside)[1], sequence.value + 8
    end = len(data) if length == _UNDEFINED else position + length
    inside = _encoding_of_item(data, position, inside) if position < end else inside
    while position < end and _delimiter(data, position, inside)[0] != _ITEM_END:
        element = _element(data, position, inside)
        yield element
        position = _end_of(data, element, inside)


def _first_wanted(data: memoryview, position: int, wanted: frozenset[int], layout: Struct) -> int:
    """The position of the first element that is wanted, has no 16-bit length, or is the last one that begins within the data."""
    unpack, last = layout.unpack_from, len(data) - layout.size
    while position <= last:
        group, number, vr, length = unpack(data, position)
        following = position + 8 + length
        if following >= last or vr not in _SHORT_VRS or group << 16 | number in wanted:
            break
        position = following
    return position


def name_of(tag: int) -> str:
    """The tag as the standard writes it."""
    return f"({tag >> 16:04X},{tag & 0xFFFF:04X})"


def _element(data: memoryview, position: int, encoding: Encoding) -> Element:
    short, long, tag_and_length = _LAYOUTS[encoding.byte_order]
    try:
        if encoding.is_implicit:
            group, number, length = tag_and_length.unpack_from(data, position)
            return Element(group << 16 | number, b"", position, position + 8, None if length == _UNDEFINED else length)
        group, number, vr, length = short.unpack_from(data, position)
        if vr in _SHORT_VRS:
            return Element(group << 16 | number, vr, position, position + 8, length)
        if vr not in _LONG_VRS:
            raise CannotUnderstand(_strange(vr, group << 16 | number))
        (length,) = long.unpack_from(data, position + 8)
    except struct.error:
        raise CannotUnderstand("The data set ends inside the header of an element") from None
    return Element(group << 16 | number, vr, position, position + 12, None if length == _UNDEFINED else length)


def _strange(vr: bytes, tag: int) -> str:
    if _VR.fullmatch(vr):
        return f"{name_of(tag)} has the unknown value representation {vr.decode()}; leave it out, or send it as UN"
    return "The data set is not encoded in its Transfer Syntax"


def _end_of(data: memoryview, element: Element, encoding: Encoding) -> int:
    if element.length is not None:
        return element.value + element.length
    return _end_of_sequence(data, element.value, _inside(element, encoding))


def _inside(element: Element, encoding: Encoding) -> Encoding:
    # PS3.5 6.2.2, note 4: a sequence of unknown VR and undefined length is implicit little endian inside.
    return _IMPLICIT_LITTLE if element.vr == b"UN" else encoding


def _end_of_sequence(data: memoryview, position: int, encoding: Encoding) -> int:
    """The position after a value of undefined length: items, each with elements, each perhaps undefined again (PS3.5 7.5)."""
    # One entry a level: inside a sequence (False), or inside an item of undefined length (True).
    levels = [(False, encoding)]
    while levels:
        is_item, inside = levels[-1]
        tag, length = _delimiter(data, position, inside)
        if tag == (_ITEM_END if is_item else _SEQUENCE_END):
            levels.pop()
            position += 8
        elif is_item:
            element = _element(data, position, inside)
            position = element.value + (element.length or 0)
            if element.length is None:
                levels.append((False, _inside(element, inside)))
        elif tag != _ITEM:
            raise CannotUnderstand("A sequence holds something that is not an item")
        elif length == _UNDEFINED:
            position += 8
            levels.append((True, _encoding_of_item(data, position, inside)))
        else:
            position += 8 + length
    return position


def _delimiter(data: memoryview, position: int, encoding: Encoding) -> tuple[int, int]:
    """Tag and 32-bit length, as items and delimiters have them in every encoding (PS3.5 7.5)."""
    try:
        group, number, length = struct.unpack_from(f"{encoding.byte_order}HHL", data, position)
    except struct.error:
        raise CannotUnderstand("The data set ends inside a sequence") from None
    return group << 16 | number, length


def _encoding_of_item(data: memoryview, position: int, encoding: Encoding) -> Encoding:
    """Some devices write implicit VR inside the sequences of an explicit data set; the item's first element tells."""
    if encoding.is_implicit or _VR.fullmatch(data[position + 4 : position + 6]) or _delimiter(data, position, encoding)[0] == _ITEM_END:
        return encoding
    return Encoding(is_implicit=True, byte_order=encoding.byte_order)
