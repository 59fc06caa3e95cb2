"""Limits on the elements and items of a header, and on the depth of its sequences.

An empty item takes 8 bytes of a file, and half a kilobyte and 10 µs of each reader: of 16 MiB two
million, a gigabyte and minutes. So each reader counts, here or as it reads: none reads beyond these
numbers. Of our real objects the largest has some 300, the deepest five levels. A document that
lists instances may have more: three for each. Torch-free.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from struct import Struct, error
from typing import Final

from pydicom.datadict import dictionary_VR

from hilum_preprocessing.header.vr import LONG_VRS, SHORT_VRS

MAXIMUM_ELEMENTS: Final = 10_000
"""Elements, items and values of a long element, all together, before Pixel Data."""
MAXIMUM_LISTED: Final = 100_000
"""The same of a document that lists instances: a rejection note or a commitment request."""
MAXIMUM_DEPTH: Final = 64
"""Sequences within each other."""

_LEAST_BYTES: Final = 8  # of an element or an item
_READS_OF_ONE: Final = 4  # at most: head, length, value, and where a sequence may end
_DENSE: Final = 64  # of random bytes one in 256 is the backslash that parts values
_CHARACTER_SET: Final = 0x00080005
_ITEM = 0xFFFEE000
_ITEM_END = 0xFFFEE00D
_SEQUENCE_END = 0xFFFEE0DD
_UNDEFINED: Final = 0xFFFFFFFF
_TEXTS: Final = frozenset(
    ("AE", "AS", "CS", "DA", "DS", "DT", "IS", "LO", "PN", "SH", "TM", "UC", "UI")
)
_NUMBERS: Final = {"AT": 4, "FD": 8, "FL": 4, "SL": 4, "SS": 2, "SV": 8, "UL": 4, "US": 2, "UV": 8}
_LONG_VALUE_BYTES: Final = 1 << 16  # what a VR with 16 bits of length holds (PS3.5 7.1.2)
_EXPLICIT: Final = {order: Struct(f"{order}HH2sH") for order in "<>"}
_IMPLICIT: Final = {order: Struct(f"{order}HHL") for order in "<>"}
_TAG: Final = {order: Struct(f"{order}HH") for order in "<>"}
_LENGTH: Final = {order: Struct(f"{order}L") for order in "<>"}
_DELIMITERS: Final = {
    order: frozenset(
        Struct(f"{order}HH").pack(tag >> 16, tag & 0xFFFF)
        for tag in (_ITEM, _ITEM_END, _SEQUENCE_END)
    )
    for order in "<>"
}


class TooComplex(ValueError):
    """More elements or items than a header may have, or deeper."""


class Budget:
    """The elements and items that a walk may still read."""

    __slots__ = ("left",)

    def __init__(self, left: int = MAXIMUM_ELEMENTS) -> None:
        self.left = left

    def spend(self, count: int = 1, depth: int = 0) -> None:
        """Raises TooComplex."""
        self.left -= count
        if self.left < 0:
            raise TooComplex(too_many())
        if depth > MAXIMUM_DEPTH:
            raise TooComplex(too_deep())


def too_deep() -> str:
    """In words."""
    return f"sequences more than {MAXIMUM_DEPTH} deep"


def reads() -> Budget:
    """For a reader that reads each element and item piece by piece."""
    return Budget(MAXIMUM_ELEMENTS * _READS_OF_ONE)


def counted(reads: Budget, piece: bytes) -> bytes:
    """A piece that was read.

    One that is a list of values counts for as many: character sets are looked up at once. Raises
    TooComplex.
    """
    values = piece.count(b"\\")
    reads.spend(1 + (values if values * _DENSE > len(piece) else 0))
    return piece


class CountedBytes(io.BytesIO):
    """Bytes for a reader that makes an object of each element.

    The reader is stopped in time, for any reading of these bytes.
    """

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        super().__init__(content)
        self._reads = reads()

    def read(self, size: int | None = -1, /) -> bytes:
        """As of all files. Raises TooComplex."""
        return counted(self._reads, super().read(size))


def too_many() -> str:
    """In words."""
    return f"more than {MAXIMUM_ELEMENTS:,} elements and items"


def require_bounded(
    data: bytes | bytearray | memoryview,
    *,
    is_implicit: bool = False,
    order: str = "<",
    most: int = MAXIMUM_ELEMENTS,
) -> None:
    """Count the objects that readers would make of an encoded data set.

    Sequences of defined length are included. Raises TooComplex. `order` of its bytes, as struct has
    it. Bytes that cannot be walked count as if they were empty items.
    """
    if len(data) > most * _LEAST_BYTES:  # less cannot hold as many
        _Walk(memoryview(data), order, Budget(most)).go(
            _Level(len(data), is_implicit=is_implicit, has_items=False)
        )


def require_bounded_value(
    value: bytes, tag: int, vr: str | None, *, is_implicit: bool, order: str = "<"
) -> None:
    """The same of one element's value, which a reader is about to convert.

    `vr` None: it does not say. Raises TooComplex.
    """
    if len(value) <= _LONG_VALUE_BYTES:
        return
    name = _known_vr(tag) if vr in (None, "UN") else vr
    if name == "SQ":
        level = _Level(len(value), is_implicit=is_implicit or vr == "UN", has_items=True)
        _Walk(memoryview(value), order, Budget()).go(level)
    else:
        Budget().spend(_values(name, value))


def top_level(
    data: bytes | memoryview, *, is_implicit: bool, order: str = "<"
) -> Iterator[tuple[int, int, int]]:
    """Tag, beginning and end of each element of the top level.

    Raises TooComplex behind the last one that may be read.
    """
    view = memoryview(data)
    starts = _Walk(view, order, Budget()).starts(
        _Level(len(view), is_implicit=is_implicit, has_items=False)
    )
    for start, end in pairwise(chain(starts, [len(view)])):
        group, number = _TAG[order].unpack_from(view[start : start + 4].tobytes().ljust(4, b"\0"))
        yield group << 16 | number, start, end


@dataclass(slots=True)
class _Level:
    """A data set or an item; or a sequence, which `has_items`.

    Of fragments the items are opaque.
    """

    end: int
    is_implicit: bool
    has_items: bool
    is_opaque: bool = False


class _Walk:
    """Along one encoded data set, without recursion."""

    def __init__(self, data: memoryview, order: str, budget: Budget) -> None:
        self._data = data
        self._order = order
        self._budget = budget
        self._levels: list[_Level] = []
        self._position = 0

    def go(self, outermost: _Level) -> None:
        """To the end. Raises TooComplex."""
        for _ in self.starts(outermost):
            pass

    def starts(self, outermost: _Level) -> Iterator[int]:
        """Where each element of the outermost level begins. Raises TooComplex."""
        self._levels.append(outermost)
        while self._levels:
            level = self._levels[-1]
            if self._position >= level.end:
                self._levels.pop()
                continue
            if level is outermost:
                yield self._position
            self._budget.spend(1, len(self._levels) // 2)
            try:
                (self._pass_item if level.has_items else self._pass_element)(level)
            except error:
                self._give_up(level)

    def _give_up(self, level: _Level) -> None:
        """Count the rest of this level as if it were empty items."""
        self._budget.spend((level.end - self._position) // _LEAST_BYTES)
        self._position = level.end

    def _pass_item(self, level: _Level) -> None:
        group, number, length = _IMPLICIT[self._order].unpack_from(self._data, self._position)
        tag = group << 16 | number
        if tag == _SEQUENCE_END:
            self._position += _LEAST_BYTES
            self._levels.pop()
        elif tag != _ITEM:
            self._give_up(level)
        else:
            self._position += _LEAST_BYTES
            end = level.end if length == _UNDEFINED else min(level.end, self._position + length)
            if level.is_opaque:
                self._position = end
            else:
                self._levels.append(
                    _Level(end, level.is_implicit or self._is_implicit_here(), has_items=False)
                )

    def _is_implicit_here(self) -> bool:
        """Some devices write implicit VR inside the sequences of an explicit data set.

        The item's first element tells.
        """
        beginning = bytes(self._data[self._position : self._position + _LEAST_BYTES])
        return (
            not (beginning[4:6].isalpha() and beginning[4:6].isupper())
            and beginning[:4] not in _DELIMITERS[self._order]
        )

    def _pass_element(self, level: _Level) -> None:
        start = self._position
        if level.is_implicit:
            group, number, length = _IMPLICIT[self._order].unpack_from(self._data, start)
            vr = b""
            value = start + _LEAST_BYTES
        else:
            group, number, vr, length = _EXPLICIT[self._order].unpack_from(self._data, start)
            value = start + _LEAST_BYTES
        tag = group << 16 | number
        if tag in (_ITEM_END, _SEQUENCE_END):
            self._position = start + _LEAST_BYTES
            self._levels.pop()
            return
        if vr in LONG_VRS:
            (length,) = _LENGTH[self._order].unpack_from(self._data, value)
            value += 4
        elif vr and vr not in SHORT_VRS:
            self._give_up(level)
            return
        self._enter_or_pass(level, tag, vr, value, length)

    def _enter_or_pass(self, level: _Level, tag: int, vr: bytes, value: int, length: int) -> None:
        name = vr.decode() if vr not in (b"", b"UN") else _known_vr(tag)
        end = level.end if length == _UNDEFINED else min(level.end, value + length)
        self._position = value
        if name == "SQ" or length == _UNDEFINED:
            # PS3.5 6.2.2, note 4: what is UN is implicit inside.
            is_implicit = level.is_implicit or vr == b"UN"
            self._levels.append(
                _Level(end, is_implicit, has_items=True, is_opaque=name not in ("SQ", "UN"))
            )
            return
        self._position = end
        if end - value > _LONG_VALUE_BYTES or tag == _CHARACTER_SET:
            self._budget.spend(_values(name, self._data[value:end]))


def _values(name: str, value: bytes | memoryview) -> int:
    """How many a reader would make of a long value."""
    if name in _TEXTS:
        return bytes(value).count(b"\\")
    return len(value) // _NUMBERS[name] if name in _NUMBERS else 0


@lru_cache(4096)
def _known_vr(tag: int) -> str:
    """The VR that a reader takes for an element without one (PS3.6).

    Of several the first, but words where it may be words.
    """
    try:
        vr = dictionary_VR(tag)
    except KeyError:
        return "UN"
    return "OW" if "OW" in vr else vr.split(" ", maxsplit=1)[0]
