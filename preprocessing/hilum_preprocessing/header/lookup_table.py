"""Lookup tables (PS3.3 C.11.1.1, C.11.2.1.1), and descriptors that contradict them. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header.elements import numbers, required

_WORDS: Final = 1 << 16
_LEAST_BITS = 8
_POSSIBLE_BITS: Final = range(_LEAST_BITS, 17)
# Curves that saturate softly end a little below the top of their range.
_REACHES_THE_TOP: Final = 0.98
_SHIFTED_BY: Final = 1 / 8  # of the table; some begin a little above the smallest input


@dataclass(frozen=True, slots=True)
class LookupTable:
    """`entries[0]` is for every input up to `first`, `entries[-1]` for all beyond the last.

    Output range 0..2^bits - 1. Where the descriptor contradicts the entries: `depth_flag` for its
    number of bits, `count_flag` for its number of entries, or for the order of their bytes.
    """

    first: int
    entries: NDArray[np.float64]
    bits: int
    depth_flag: Flag | None = None
    count_flag: Flag | None = None

    def first_for(self, low: float, high: float) -> int:
        """`first` among inputs from low to high.

        It has their sign (PS3.3 C.11.1.1.1 and C.11.2.1.1), which implicit VR does not tell.

        So pydicom takes it for unsigned inside a sequence of undefined length, and for the pixels'
        where a rescale changed the sign.
        """
        if low < 0 and self.first > high and self.first >= _WORDS // 2:
            return self.first - _WORDS
        # All of such a table would lie below its inputs.
        return (
            self.first + _WORDS
            if low >= 0 and self.first < 0 and self.first + len(self.entries) <= low
            else self.first
        )

    def is_shifted(self, low: float, high: float) -> bool:
        """Whether it omits one end of the possible inputs, and exceeds the other by as much.

        Such a table is for pixels of the other sign.
        """
        first = self.first_for(low, high)
        beneath = first - low
        beyond = first + len(self.entries) - 1 - high
        return beneath * beyond > 0 and min(abs(beneath), abs(beyond)) >= _SHIFTED_BY * len(
            self.entries
        )


def lookup_table(item: Dataset) -> LookupTable:
    """The table of an item of a LUT sequence.

    Raises NotAnalysable (corrupt_header): none is there.
    """
    count, first, bits = _descriptor(item)
    data = _bytes_of(required(item, "LUTData"))
    entries, count_flag = _counted(_entries(data, count, bits), count)
    entries, order_flag = _in_order(entries)
    entries, depth, depth_flag = _of_depth(entries, bits)
    return LookupTable(
        first, entries.astype(np.float64), depth, depth_flag, count_flag or order_flag
    )


def _descriptor(item: Dataset) -> tuple[int, int, int]:
    """(number of entries, first input, bits of an entry).

    PS3.3 C.11.1.1: 0 entries mean 65536; read as SS, large counts are negative.
    """
    descriptor = numbers(item, "LUTDescriptor")
    if len(descriptor) != 3:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "LUT Descriptor is not three numbers")
    count, first, bits = (int(part) for part in descriptor)
    return count % _WORDS or _WORDS, first, bits


def _bytes_of(data: Any) -> bytes:  # noqa: ANN401 - US, SS or OW
    """LUT Data as little endian words; explicit big endian objects are refused before this."""
    if isinstance(data, bytes):
        return data
    try:
        found = [int(part) for part in (data if hasattr(data, "__len__") else [data])]
    except (ValueError, TypeError, OverflowError):  # the last for an infinite one
        raise NotAnalysable(
            Reason.CORRUPT_HEADER, "LUT Data is not a list of whole numbers"
        ) from None
    if found and not -_WORDS // 2 <= min(found) <= max(found) < _WORDS:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "LUT Data holds numbers of more than 16 bits")
    return (np.asarray(found, np.int64) % _WORDS).astype("<u2").tobytes()


def _entries(data: bytes, count: int, bits: int) -> NDArray[Any]:
    """16-bit words, or 8-bit entries packed two to a word.

    The length of the data tells (C.11.1.1.1).

    Half of a table of words has that length, too. Where the descriptor states more than 8 bits,
    entries that rise or fall throughout are 8-bit ones: the bytes of words go up and down.
    """
    packed = np.frombuffer(data, "u1")
    if len(data) in (count, count + 1) and (bits <= _LEAST_BITS or _is_monotonic(packed[:count])):
        return packed[:count]
    return np.frombuffer(data[: len(data) // 2 * 2], "<u2")


def _in_order(entries: NDArray[Any]) -> tuple[NDArray[Any], Flag | None]:
    """Words whose bytes are in the other order are turned.

    As they stand they go up and down, and turned they do not.
    """
    if (
        entries.itemsize == 1
        or _is_monotonic(entries)
        or not _is_monotonic(turned := entries.byteswap())
    ):
        return entries, None
    return turned, Flag.LUT_CORRECTED


def _is_monotonic(entries: NDArray[Any]) -> bool:
    steps = np.diff(entries.astype(np.int32))
    return bool((steps >= 0).all() or (steps <= 0).all())


def _counted(entries: NDArray[Any], count: int) -> tuple[NDArray[Any], Flag | None]:
    """The entries, without those beyond the count that only fill the data up.

    Zeros and repetitions of the last one do. Others are part of the table: flagged.
    """
    if len(entries) < count:
        raise NotAnalysable(
            Reason.CORRUPT_HEADER, f"LUT Data holds {len(entries)} of {count} entries"
        )
    beyond = entries[count:]
    if not beyond.any() or (beyond == entries[count - 1]).all():
        return entries[:count], None
    return entries[:_WORDS], Flag.LUT_CORRECTED


def _of_depth(entries: NDArray[Any], stated: int) -> tuple[NDArray[Any], int, Flag | None]:
    """Entries, their number of bits, and the flag of a doubt about it.

    It is the descriptor's where the entries fit it, and theirs where they show it: many writers
    give the size of the stored words. All entries decide, and never those that a picture uses.
    """
    top = int(entries.max())
    is_possible = stated in _POSSIBLE_BITS
    if is_possible and top >> stated:
        return _of_deeper(entries, stated, top)
    bits = max(_LEAST_BITS, top.bit_length())
    if bits == stated:
        return entries, stated, None
    if _shows(top, bits, stated):
        return entries, bits, Flag.LUT_CORRECTED
    if is_possible:
        return entries, stated, Flag.LUT_DOUBTFUL  # a dark curve, or another depth
    raise NotAnalysable(
        Reason.CORRUPT_HEADER,
        f"LUT Descriptor says {stated} bits, and the entries do not show how many",
    )


def _of_deeper(entries: NDArray[Any], stated: int, top: int) -> tuple[NDArray[Any], int, Flag]:
    """Entries beyond the bits of the descriptor.

    Equal bits above all of them are padding (PS3.3 C.11.1.1.1); others are the entries' own.
    """
    if len(np.unique(entries >> stated)) == 1:
        return entries & ((1 << stated) - 1), stated, Flag.LUT_DOUBTFUL
    bits = top.bit_length()
    return entries, bits, Flag.LUT_CORRECTED if _shows(top, bits, stated) else Flag.LUT_DOUBTFUL


def _shows(top: int, bits: int, stated: int) -> bool:
    """Whether the highest entry shows that the range is that of `bits`: it reaches the top.

    Of a curve that takes half of the range that is stated, the very top is asked: it may be a dark
    one.
    """
    highest = (1 << bits) - 1
    return top == highest or (bits != stated - 1 and top >= _REACHES_THE_TOP * highest)
