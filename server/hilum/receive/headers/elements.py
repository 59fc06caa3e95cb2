"""Places of data elements in an encoded data set, without decoding a value (PS3.5 chapter 7).

The walk is iterative, so that no depth of nesting exhausts the stack. Every fault in the bytes is
`CannotUnderstand`. Each walk ends after as many elements and items as
`hilum_preprocessing.header.structure` allows: `HeaderTooComplex`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from pydicom.uid import ExplicitVRBigEndian, ImplicitVRLittleEndian

from hilum.receive.statuses import CannotUnderstand, HeaderTooComplex
from hilum_preprocessing.header.structure import (
    MAXIMUM_DEPTH,
    MAXIMUM_ELEMENTS,
    TooComplex,
    require_bounded,
    too_deep,
    too_many,
)

_ITEM = 0xFFFEE000
_ITEM_END = 0xFFFEE00D
_SEQUENCE_END = 0xFFFEE0DD
_UNDEFINED = 0xFFFFFFFF
# PS3.5 7.1.2: these VRs have a 16-bit length; all others, future ones included, a 32-bit one.
# pydicom, which reads the stored header, takes the length of unknown VRs for a 16-bit one, and
# finds none of the following elements. So such objects are refused.
_SHORT_VRS = frozenset(b"AE AS AT CS DA DS DT FL FD IS LO LT PN SH SL SS ST TM UI UL US".split())
_LONG_VRS = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())
_VR = re.compile(rb"[A-Z]{2}")
# An element with a 16-bit length, the 32-bit length of the others, and the header of implicit VR
# (PS3.5 7.1.2, 7.1.3), by byte order.
_LAYOUTS = {
    order: (Struct(f"{order}HH2sH"), Struct(f"{order}L"), Struct(f"{order}HHL")) for order in "<>"
}
# The first of them with tag and VR as one number each: most elements are only skipped, and numbers
# are made and looked up faster.
_PASSED = {order: Struct(f"{order}LHH") for order in "<>"}
_VR_NUMBERS = {
    order: tuple(
        frozenset(Struct(f"{order}H").unpack(vr)[0] for vr in vrs)
        for vrs in (_SHORT_VRS, _LONG_VRS)
    )
    for order in "<>"
}
Place = tuple[int, int, int | None]
"""Where an element begins, where its value does, and the value's length; None: undefined."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How data elements are written: `byte_order` as in struct."""

    is_implicit: bool
    byte_order: str


EXPLICIT_LITTLE = Encoding(is_implicit=False, byte_order="<")
IMPLICIT_LITTLE = Encoding(is_implicit=True, byte_order="<")
_EXPLICIT_BIG = Encoding(is_implicit=False, byte_order=">")


class WantedElements:
    """Tags to search for in a data set, up to `last`."""

    def __init__(self, tags: Iterable[int], last: int) -> None:
        self.last = last
        self.tags = frozenset((*tags, last))
        # By byte order, as `_PASSED` reads them.
        self.numbers = {
            "<": {(tag & 0xFFFF) << 16 | tag >> 16: tag for tag in self.tags},
            ">": {tag: tag for tag in self.tags},
        }


class Element(NamedTuple):
    """A data element's place: its tag at `start`, its value at `value`.

    `length` None: undefined.
    """

    tag: int
    vr: bytes
    start: int
    value: int
    length: int | None


def encoding_of(transfer_syntax_uid: str) -> Encoding:
    """Return the encoding of a Transfer Syntax (PS3.5 annex A).

    All are explicit little endian, except for two.
    """
    if transfer_syntax_uid == ImplicitVRLittleEndian:
        return IMPLICIT_LITTLE
    return _EXPLICIT_BIG if transfer_syntax_uid == ExplicitVRBigEndian else EXPLICIT_LITTLE


def is_explicit(data: memoryview) -> bool:
    """Return whether a data set begins as in explicit VR little endian.

    Read as implicit VR, its first value would be of 16 KiB and more.
    """
    return bytes(data[4:6]) in _SHORT_VRS | _LONG_VRS


class _Steps:
    """The number of elements and items that a walk may still visit."""

    __slots__ = ("left",)

    def __init__(self, most: int = MAXIMUM_ELEMENTS) -> None:
        self.left = most

    def take(self, count: int = 1) -> None:
        """Count elements or items. Raises HeaderTooComplex."""
        self.left -= count
        if self.left < 0:
            raise _refused(too_many())


def require_countable(data: memoryview, encoding: Encoding, most: int) -> None:
    """Raise HeaderTooComplex for a header that is too large for other readers.

    They make an object of each element and item.
    """
    try:
        require_bounded(
            data, is_implicit=encoding.is_implicit, order=encoding.byte_order, most=most
        )
    except TooComplex as error:
        raise _refused(str(error)) from None


def elements(data: memoryview, encoding: Encoding) -> Iterator[Element]:
    """Return the elements of the top level.

    A value is skipped only when the caller requests the next element.
    """
    position = 0
    steps = _Steps()
    while position < len(data):
        steps.take()
        element = _element(data, position, encoding)
        yield element
        position = _end_within(data, element, encoding, steps)


def values_in(
    data: bytes | memoryview, wanted: Container[int], last: int
) -> dict[int, bytes] | None:
    """Return the values of these elements of the top level, by tag.

    The data set is in Explicit VR Little Endian. Values of undefined length are left out. Reading
    stops at the header of the first element beyond `last`. None: there is a fault before it, which
    `elements` names.
    """
    found: dict[int, bytes] = {}
    unpack = _LAYOUTS["<"][0].unpack_from
    unpack_length = _LAYOUTS["<"][1].unpack_from
    position = 0
    size = len(data)
    steps = _Steps()
    try:
        while position < size:
            steps.left -= 1
            if steps.left < 0:
                return None
            group, number, vr, length = unpack(data, position)
            value = position + 8
            if vr not in _SHORT_VRS:
                if vr not in _LONG_VRS:
                    return None
                (length,) = unpack_length(data, value)
                value += 4
            tag = group << 16 | number
            if tag > last:
                return found
            if length == _UNDEFINED:
                position = _end_of(
                    memoryview(data),
                    Element(tag, vr, position, value, None),
                    EXPLICIT_LITTLE,
                    steps,
                )
                continue
            position = value + length
            if tag in wanted:
                found[tag] = bytes(data[value:position])
    except (struct.error, CannotUnderstand):
        return None
    return found if position == size else None


def find(
    data: memoryview, encoding: Encoding, wanted: WantedElements, most: int = MAXIMUM_ELEMENTS
) -> dict[int, Place]:
    """Return the places of the wanted elements of the top level, by tag.

    Reading stops at the header of the last one. At most `most` elements and items are visited.
    """
    found: dict[int, Place] = {}
    position = 0
    steps = _Steps(most)
    while position < len(data):
        steps.take()
        if not encoding.is_implicit:
            position = _pass(data, position, encoding.byte_order, wanted, found, steps)
        element = _element(data, position, encoding)
        if element.tag in wanted.tags:
            found[element.tag] = element.start, element.value, element.length
            if element.tag == wanted.last:
                break
        position = _end_within(data, element, encoding, steps)
    return found


def first_item(data: memoryview, sequence: Element, encoding: Encoding) -> Iterator[Element]:
    """Return the elements of a sequence's first item, or none."""
    inside = _inside(sequence, encoding)
    if sequence.length == 0 or _delimiter(data, sequence.value, inside)[0] != _ITEM:
        return
    length = _delimiter(data, sequence.value, inside)[1]
    position = sequence.value + 8
    end = len(data) if length == _UNDEFINED else position + length
    inside = _encoding_of_item(data, position, inside) if position < end else inside
    steps = _Steps()
    while position < end and _delimiter(data, position, inside)[0] != _ITEM_END:
        element = _element(data, position, inside)
        steps.take()
        yield element
        position = _end_of(data, element, inside, steps)


def _pass(
    data: memoryview,
    position: int,
    order: str,
    wanted: WantedElements,
    found: dict[int, Place],
    steps: _Steps,
) -> int:
    """Note wanted elements, and return the position of the first one that needs a closer look.

    That is one without a length, of an unknown VR, the last wanted one, or the last one whose
    header is within the data.
    """
    unpack = _PASSED[order].unpack_from
    unpack_length = _LAYOUTS[order][1].unpack_from
    numbers = wanted.numbers[order]
    last = position
    (short, long) = _VR_NUMBERS[order]
    passed = 0
    try:
        for passed in range(steps.left + 1):  # noqa: B007 - read in `finally`
            number, vr, length = unpack(data, position)
            value = position + 8
            if vr not in short:
                value = position + 12
                (length,) = unpack_length(data, position + 8) if vr in long else (_UNDEFINED,)
                if length == _UNDEFINED:
                    return position
            if number in numbers:
                if numbers[number] == wanted.last:
                    return position
                found[numbers[number]] = position, value, length
            last = position
            position = value + length
    except struct.error:
        return last
    finally:
        steps.left -= passed
    raise _refused(too_many())


def _refused(words: str) -> HeaderTooComplex:
    return HeaderTooComplex(f"{words[0].upper()}{words[1:]} before Pixel Data; send less")


def name_of(tag: int) -> str:
    """Return the tag as the standard writes it."""
    return f"({tag >> 16:04X},{tag & 0xFFFF:04X})"


def _element(data: memoryview, position: int, encoding: Encoding) -> Element:
    short, long, tag_and_length = _LAYOUTS[encoding.byte_order]
    try:
        if encoding.is_implicit:
            group, number, length = tag_and_length.unpack_from(data, position)
            return Element(
                group << 16 | number,
                b"",
                position,
                position + 8,
                None if length == _UNDEFINED else length,
            )
        group, number, vr, length = short.unpack_from(data, position)
        if vr in _SHORT_VRS:
            return Element(group << 16 | number, vr, position, position + 8, length)
        if vr not in _LONG_VRS:
            raise CannotUnderstand(_strange(vr, group << 16 | number))
        (length,) = long.unpack_from(data, position + 8)
    except struct.error:
        raise CannotUnderstand("The data set ends inside the header of an element") from None
    return Element(
        group << 16 | number, vr, position, position + 12, None if length == _UNDEFINED else length
    )


def _strange(vr: bytes, tag: int) -> str:
    if _VR.fullmatch(vr):
        return (
            f"{name_of(tag)} has the unknown value representation {vr.decode()}; leave it out, or"
            " send it as UN"
        )
    return "The data set is not encoded in its Transfer Syntax"


def _end_within(data: memoryview, element: Element, encoding: Encoding, steps: _Steps) -> int:
    position = _end_of(data, element, encoding, steps)
    if position > len(data):
        raise CannotUnderstand(f"The data set ends inside {name_of(element.tag)}")
    return position


def _end_of(data: memoryview, element: Element, encoding: Encoding, steps: _Steps) -> int:
    if element.length is not None:
        return element.value + element.length
    return _end_of_sequence(data, element.value, _inside(element, encoding), steps)


def _inside(element: Element, encoding: Encoding) -> Encoding:
    # PS3.5 6.2.2, note 4: a sequence of unknown VR and undefined length is implicit little endian
    # inside.
    return IMPLICIT_LITTLE if element.vr == b"UN" else encoding


def _end_of_sequence(data: memoryview, position: int, encoding: Encoding, steps: _Steps) -> int:
    """Return the position after a value of undefined length (PS3.5 7.5).

    It has items, each with elements, which may have undefined lengths again.
    """
    # One entry a level: inside a sequence (False), or inside an item of undefined length (True).
    levels = [(False, encoding)]
    while levels:
        is_item, inside = levels[-1]
        steps.take()
        if len(levels) > 2 * MAXIMUM_DEPTH:
            raise _refused(too_deep())
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
    """Return tag and 32-bit length of an item or delimiter.

    They have the same form in every encoding (PS3.5 7.5).
    """
    try:
        group, number, length = struct.unpack_from(f"{encoding.byte_order}HHL", data, position)
    except struct.error:
        raise CannotUnderstand("The data set ends inside a sequence") from None
    return group << 16 | number, length


def _encoding_of_item(data: memoryview, position: int, encoding: Encoding) -> Encoding:
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
