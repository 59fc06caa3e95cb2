"""The index of an encoded data set: where its top-level elements are (PS3.5 chapter 7). Torch-free.

No value is decoded. The walk is iterative, so that no depth of nesting exhausts the stack. It
visits at most as many elements and items as its budget allows: TooComplex. Every other fault in the
bytes is `BrokenDataSet`.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from pydicom.uid import ExplicitVRBigEndian, ImplicitVRLittleEndian

from hilum_preprocessing.header.structure import (
    MAXIMUM_DEPTH,
    MAXIMUM_ELEMENTS,
    Budget,
    TooComplex,
    too_deep,
    too_many,
)
from hilum_preprocessing.header.vr import LONG_VRS, SHORT_VRS

Bytes = bytes | bytearray | memoryview | mmap.mmap
END: Final = 1 << 32
"""As a tag to stop at: beyond every tag, so the index ends with the data."""

_ITEM: Final = 0xFFFEE000
_ITEM_END: Final = 0xFFFEE00D
_SEQUENCE_END: Final = 0xFFFEE0DD
_UNDEFINED: Final = 0xFFFFFFFF
_VR: Final = re.compile(rb"[A-Z]{2}")
_TAG: Final = {order: Struct(f"{order}HH") for order in "<>"}
_EXPLICIT: Final = {order: Struct(f"{order}HH2sH") for order in "<>"}
_LONG_LENGTH: Final = {order: Struct(f"{order}L") for order in "<>"}
_IMPLICIT: Final = {order: Struct(f"{order}HHL") for order in "<>"}  # PS3.5 7.1.3
_NO_VR: Final = -1  # of implicit VR
# For the run: it passes most elements, and a VR as a number is made and looked up faster.
_PASSED: Final = {order: Struct(f"{order}HHHH") for order in "<>"}
_VR_OF: Final = {
    order: {Struct(f"{order}H").unpack(vr)[0]: vr for vr in SHORT_VRS | LONG_VRS} | {_NO_VR: b""}
    for order in "<>"
}
_SHORT: Final = {
    order: frozenset(number for number, vr in names.items() if vr in SHORT_VRS)
    for order, names in _VR_OF.items()
}


class BrokenDataSet(ValueError):
    """The bytes are not a data set in this encoding. The message is a sentence for the sender."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How data elements are written: `byte_order` as in struct."""

    is_implicit: bool
    byte_order: str


EXPLICIT_LITTLE: Final = Encoding(is_implicit=False, byte_order="<")
IMPLICIT_LITTLE: Final = Encoding(is_implicit=True, byte_order="<")
EXPLICIT_BIG: Final = Encoding(is_implicit=False, byte_order=">")


def encoding_of(transfer_syntax_uid: str) -> Encoding:
    """Return the encoding of a Transfer Syntax (PS3.5 annex A).

    All are explicit little endian, except for two. A deflated data set is that once inflated.
    """
    if transfer_syntax_uid == ImplicitVRLittleEndian:
        return IMPLICIT_LITTLE
    return EXPLICIT_BIG if transfer_syntax_uid == ExplicitVRBigEndian else EXPLICIT_LITTLE


def is_explicit(data: Bytes) -> bool:
    """Return whether a data set begins as in explicit VR little endian.

    Read as implicit VR, its first value would be of 16 KiB and more.
    """
    return bytes(data[4:6]) in SHORT_VRS | LONG_VRS


class Element(NamedTuple):
    """A place: the tag at `start`, the value from `value` to `end`. None: its length is undefined.

    `vr` is empty in implicit VR.
    """

    tag: int
    vr: bytes
    start: int
    value: int
    end: int | None


Place = tuple[int, bytes, int, int, int]
"""The fields of an `Element` whose length is defined."""


# `Element._make` is a function in Python, which takes longer than to find the element.
element_of: Callable[[Place], Element] = partial(tuple.__new__, Element)


class Cursor(Budget):
    """The position of a walk along the top level, and the rest of its budget.

    `is_at_stop`: the last run ended before an element with the tag `stop` or a higher one.
    """

    __slots__ = ("is_at_stop", "position")

    def __init__(self, position: int = 0, most: int = MAXIMUM_ELEMENTS) -> None:
        super().__init__(most)
        self.position = position
        self.is_at_stop = False


def plain_run(
    data: Bytes, cursor: Cursor, encoding: Encoding, wanted: Container[int] | None, stop: int
) -> Iterator[Place]:
    """Yield the wanted elements (None: all) up to the first one that needs a closer look.

    The cursor then stands there, or at the end of the data. A closer look is needed at

    * an element with the tag `stop` or a higher one,
    * one of undefined length or unknown VR, and
    * one that is cut; then the cursor may stand at the last one whose header is whole.

    Raises TooComplex.
    """
    is_implicit = encoding.is_implicit
    order = encoding.byte_order
    unpack = (_IMPLICIT if is_implicit else _PASSED)[order].unpack_from
    unpack_length = _LONG_LENGTH[order].unpack_from
    short = _SHORT[order]
    vr_of = _VR_OF[order]
    vr = _NO_VR
    last = position = cursor.position
    left = 0
    try:
        for left in range(cursor.left, -1, -1):  # noqa: B007 - read behind the loop
            if is_implicit:
                group, number, length = unpack(data, position)
                value = position + 8
                if length == _UNDEFINED:
                    break
            else:
                group, number, vr, length = unpack(data, position)
                if vr in short:
                    value = position + 8
                else:
                    if vr not in vr_of:
                        break
                    (length,) = unpack_length(data, position + 8)
                    if length == _UNDEFINED:
                        break
                    value = position + 12
            if (tag := group << 16 | number) >= stop:
                cursor.is_at_stop = True
                break
            last = position
            position = value + length
            if wanted is None or tag in wanted:
                yield tag, vr_of[vr], last, value, position
        else:
            raise TooComplex(too_many())
    except struct.error:
        position = position if position == len(data) else last
    cursor.left = left
    cursor.position = position


def index(
    data: Bytes,
    encoding: Encoding,
    wanted: Container[int],
    stop: int = END,
    most: int = MAXIMUM_ELEMENTS,
    *,
    is_ordered: bool = True,
) -> dict[int, Element]:
    """Return the places of the wanted elements of the top level.

    It ends before the first element with the tag `stop` or a higher one. Some writers do not sort
    elements: without `is_ordered` it ends with the first element with the tag `stop`. Its place is
    returned too, if it is wanted, and its value may be cut. Raises BrokenDataSet, TooComplex.
    """
    found: dict[int, Element] = {}
    cursor = Cursor(0, most)
    while True:
        for place in plain_run(data, cursor, encoding, wanted, stop):
            found[place[0]] = element_of(place)
        if cursor.position >= len(data) or (cursor.is_at_stop and is_ordered):
            return found
        element = element_at(data, cursor.position, encoding)
        if element.tag >= stop and is_ordered:
            return found
        if element.tag in wanted:
            found[element.tag] = element
        if element.tag == stop:
            return found
        cursor.spend()
        cursor.position = _end_within(data, element, encoding, cursor)


def first_item(data: memoryview, sequence: Element, encoding: Encoding) -> Iterator[Element]:
    """Return the elements of a sequence's first item, or none. Raises BrokenDataSet, TooComplex."""
    inside = _inside(sequence, encoding)
    if sequence.end == sequence.value or _delimiter(data, sequence.value, inside)[0] != _ITEM:
        return
    length = _delimiter(data, sequence.value, inside)[1]
    position = sequence.value + 8
    end = len(data) if length == _UNDEFINED else position + length
    inside = _encoding_of_item(data, position, inside) if position < end else inside
    budget = Budget()
    while position < end and _delimiter(data, position, inside)[0] != _ITEM_END:
        element = element_at(data, position, inside)
        budget.spend()
        yield element
        position = _end_of(data, element, inside, budget)


def tag_at(data: Bytes, position: int, encoding: Encoding) -> int:
    """Return the tag at a position. Raises struct.error."""
    group, number = _TAG[encoding.byte_order].unpack_from(data, position)
    return int(group << 16 | number)


def element_at(data: Bytes, position: int, encoding: Encoding) -> Element:
    """Return the element at a position. Raises BrokenDataSet."""
    order = encoding.byte_order
    value = position + 8
    vr = b""
    try:
        if encoding.is_implicit:
            group, number, length = _IMPLICIT[order].unpack_from(data, position)
        else:
            group, number, vr, length = _EXPLICIT[order].unpack_from(data, position)
            if vr not in SHORT_VRS:
                if vr not in LONG_VRS:
                    raise BrokenDataSet(_strange(vr, group << 16 | number))
                (length,) = _LONG_LENGTH[order].unpack_from(data, value)
                value += 4
    except struct.error:
        raise BrokenDataSet("The data set ends inside the header of an element") from None
    end = None if length == _UNDEFINED else value + length
    return Element(group << 16 | number, vr, position, value, end)


def name_of(tag: int) -> str:
    """Return the tag as the standard writes it."""
    return f"({tag >> 16:04X},{tag & 0xFFFF:04X})"


def _strange(vr: bytes, tag: int) -> str:
    if _VR.fullmatch(vr):
        return (
            f"{name_of(tag)} has the unknown value representation {vr.decode()}; leave it out, or"
            " send it as UN"
        )
    return "The data set is not encoded in its Transfer Syntax"


def _end_within(data: Bytes, element: Element, encoding: Encoding, budget: Budget) -> int:
    position = _end_of(data, element, encoding, budget)
    if position > len(data):
        raise BrokenDataSet(f"The data set ends inside {name_of(element.tag)}")
    return position


def _end_of(data: Bytes, element: Element, encoding: Encoding, budget: Budget) -> int:
    if element.end is not None:
        return element.end
    return _end_of_sequence(data, element.value, _inside(element, encoding), budget)


def _inside(element: Element, encoding: Encoding) -> Encoding:
    # PS3.5 6.2.2, note 4: a sequence of unknown VR and undefined length is implicit little endian
    # inside.
    return IMPLICIT_LITTLE if element.vr == b"UN" else encoding


def _end_of_sequence(data: Bytes, position: int, encoding: Encoding, budget: Budget) -> int:
    """Return the position after a value of undefined length (PS3.5 7.5).

    It has items, each with elements, which may have undefined lengths again.
    """
    # One entry a level: inside a sequence (False), or inside an item of undefined length (True).
    levels = [(False, encoding)]
    while levels:
        is_item, inside = levels[-1]
        budget.spend()
        if len(levels) > 2 * MAXIMUM_DEPTH:
            raise TooComplex(too_deep())
        tag, length = _delimiter(data, position, inside)
        if tag == (_ITEM_END if is_item else _SEQUENCE_END):
            levels.pop()
            position += 8
        elif is_item:
            element = element_at(data, position, inside)
            position = element.value if element.end is None else element.end
            if element.end is None:
                levels.append((False, _inside(element, inside)))
        elif tag != _ITEM:
            raise BrokenDataSet("A sequence holds something that is not an item")
        elif length == _UNDEFINED:
            position += 8
            levels.append((True, _encoding_of_item(data, position, inside)))
        else:
            position += 8 + length
    return position


def _delimiter(data: Bytes, position: int, encoding: Encoding) -> tuple[int, int]:
    """Return tag and 32-bit length of an item or delimiter.

    They have the same form in every encoding (PS3.5 7.5).
    """
    try:
        group, number, length = _IMPLICIT[encoding.byte_order].unpack_from(data, position)
    except struct.error:
        raise BrokenDataSet("The data set ends inside a sequence") from None
    return group << 16 | number, length


def _encoding_of_item(data: Bytes, position: int, encoding: Encoding) -> Encoding:
    """Return the encoding inside an item, by its first element.

    Some devices write implicit VR inside the sequences of an explicit data set.
    """
    if (
        encoding.is_implicit
        or _VR.fullmatch(data[position + 4 : position + 6])
        or _delimiter(data, position, encoding)[0] == _ITEM_END
    ):
        return encoding
    return Encoding(is_implicit=True, byte_order=encoding.byte_order)
