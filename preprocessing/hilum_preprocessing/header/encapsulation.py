"""Encapsulated Pixel Data: from items to the codestream of one frame (PS3.5 A.4). Torch-free."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from pydicom.dataset import Dataset

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import element, required

_ITEM: Final = b"\xfe\xff\x00\xe0"
_DELIMITER: Final = b"\xfe\xff\xdd\xe0"
_MOST_ITEMS: Final = 100_000  # an empty one takes 8 bytes of the file, and hundreds here
_HEAD: Final = struct.Struct("<4sI")
# EOI of JPEG and JPEG-LS, EOC of JPEG 2000. It does not occur within their entropy-coded data.
END_MARKER: Final = b"\xff\xd9"
# SOI, SOC and SIZ, a JP2 file.
_STARTS: Final = (b"\xff\xd8\xff", b"\xff\x4f\xff\x51", b"\x00\x00\x00\x0cjP  ")
# PS3.5 G.5: the first segment follows the header.
_RLE_STARTS: Final = tuple(struct.pack("<II", count, 64) for count in range(1, 16))
# PS3.5 A.4: a fragment of odd length is padded with one 00. Some writers pad with FF, with leftover
# memory, or up to a sector.
_SECTOR_BYTES: Final = 4096
_PADDING_BYTES: Final = 64

Codestream = memoryview | bytes


def end_of(codestream: Codestream) -> int:
    """Where the end marker of a codestream ends; 0 where there is none.

    Behind it may stand a sector of 00 and FF, and before those 62 bytes of anything. A second end
    marker is padding, too.
    """
    tail = bytes(codestream[-_SECTOR_BYTES:]).rstrip(b"\x00\xff")
    at = tail.rfind(END_MARKER, max(0, len(tail) - _PADDING_BYTES))
    while at >= 2 and tail[at - 2 : at] == END_MARKER:
        at -= 2
    return (
        len(codestream) - min(_SECTOR_BYTES, len(codestream)) + at + len(END_MARKER)
        if at >= 0
        else 0
    )


def codestream_of(dataset: Dataset, frame: int, frames: int) -> Codestream:
    """The codestream of one frame: its fragments, joined.

    Nothing is copied when there is one. Raises NotAnalysable.
    """
    table, *fragments = items(memoryview(required(dataset, "PixelData")))
    _require_no_more(fragments, frames)
    chosen = _of_frame(dataset, table[1], fragments, frame, frames)
    if not chosen:
        raise NotAnalysable(
            Reason.TRUNCATED_PIXEL_DATA, f"no fragment for frame {frame + 1} of {frames}"
        )
    return chosen[0] if len(chosen) == 1 else b"".join(chosen)


def _require_no_more(fragments: Sequence[tuple[int, memoryview]], frames: int) -> None:
    """Raises NotAnalysable (excess_pixel_data) for more codestreams than frames.

    Another frame might be the picture.
    """
    found = 0
    for number, (_, value) in enumerate(fragments):
        head = bytes(value[:8])
        is_first_or_behind_an_end = number == 0 or end_of(fragments[number - 1][1]) > 0
        found += (head.startswith(_STARTS) and is_first_or_behind_an_end) or head in _RLE_STARTS
    if found > frames:
        raise NotAnalysable(
            Reason.EXCESS_PIXEL_DATA, f"{found} codestreams, Number of Frames {frames}"
        )


def items(data: memoryview) -> list[tuple[int, memoryview]]:
    """Position and value of each item, the offset table first.

    Raises NotAnalysable when they do not follow each other.
    """
    found = list(_walk(data))
    if not found:
        raise _broken("no item")
    return found


def end_of_items(data: memoryview) -> int:
    """Where the sequence delimiter stands.

    Raises NotAnalysable (truncated_pixel_data) when the data ends before it.
    """
    position = 0
    for start, value in _walk(data):
        position = start + _HEAD.size + len(value)
    if bytes(data[position : position + 4]) != _DELIMITER:
        raise NotAnalysable(
            Reason.TRUNCATED_PIXEL_DATA, "no sequence delimiter after the fragments"
        )
    return position


def _walk(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    position = 0
    for number in count():
        if position + _HEAD.size > len(data):
            break
        if number > _MOST_ITEMS:
            raise _broken(f"more than {_MOST_ITEMS} items")
        length = _item_length(data, position)
        if length is None:
            return
        start = position + _HEAD.size
        yield position, data[start : start + length]
        position = start + length
    if any(data[position:]):
        raise _broken("less than an item's head at the end")


def _item_length(data: memoryview, position: int) -> int | None:
    """Bytes of the value of the item that begins there; None: the sequence delimiter does."""
    tag, length = _HEAD.unpack_from(data, position)
    if tag == _DELIMITER:
        return None
    if tag != _ITEM:
        raise _broken("neither item nor delimiter")
    left = len(data) - position - _HEAD.size
    if length > left:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, f"fragment of {length} bytes, {left} left")
    return int(length)


def _broken(detail: str) -> NotAnalysable:
    return NotAnalysable(Reason.UNDECODABLE, f"broken encapsulation: {detail}")


def _of_frame(
    dataset: Dataset,
    table: memoryview,
    fragments: Sequence[tuple[int, memoryview]],
    frame: int,
    frames: int,
) -> list[memoryview]:
    """One frame owns all fragments, with any offset tables.

    Many own one each, or the ones that the tables give them.
    """
    if len(table) % 4:
        raise _broken(f"offset table of {len(table)} bytes")
    if frames == 1:
        return [value for _, value in fragments]
    if len(fragments) == frames:
        return [fragments[frame][1]]
    if (starts := _offsets(dataset, table, frames)) is not None:
        return _between(fragments, [*starts, math.inf], frame)
    grouped = _by_end_marker(fragments)
    return grouped[frame] if len(grouped) == frames else []


def _between(
    fragments: Sequence[tuple[int, memoryview]], starts: Sequence[float], frame: int
) -> list[memoryview]:
    """Fragments from a frame's offset to the next one; offsets count from the first item tag."""
    first = fragments[0][0] if fragments else 0
    return [value for at, value in fragments if starts[frame] <= at - first < starts[frame + 1]]


def _offsets(dataset: Dataset, table: memoryview, frames: int) -> Sequence[int] | None:
    """Basic Offset Table, else the Extended one (PS3.3 C.7.6.3.1.8)."""
    extended = element(dataset, "ExtendedOffsetTable")
    for data, letter in ((table, "I"), (extended if isinstance(extended, bytes) else b"", "Q")):
        if len(data) == frames * struct.calcsize(letter):
            return struct.unpack(f"<{frames}{letter}", data)
    return None


def _by_end_marker(fragments: Sequence[tuple[int, memoryview]]) -> list[list[memoryview]]:
    """Frames without tables: each ends with the fragment that ends with an end marker."""
    grouped: list[list[memoryview]] = [[]]
    for _, value in fragments:
        grouped[-1].append(value)
        if end_of(value):
            grouped.append([])
    return grouped[:-1]
