"""Huffman tables of JPEG, and the symbols that they read from some hundred bits. Torch-free.

A simulation of the data behind a picture, see `tail`; pictures are decoded elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

# 16 bits that are no code, and one more: libjpeg then gives up and takes 0 for the symbol.
_NO_CODE_BITS: Final = 17
_COEFFICIENTS: Final = 63
_ZERO_RUN: Final = 0xF0

Codes = Mapping[tuple[int, int], int]
"""(length in bits, code) to symbol."""


class Table(NamedTuple):
    """As a DHT segment states it.

    How many codes there are of 1 to 16 bits, and their symbols in order.
    """

    counts: bytes
    symbols: bytes


def tables_of(segment: bytes) -> Iterator[tuple[int, Table]]:
    """(class and destination, table) of each table in a DHT segment without its length.

    ISO/IEC 10918-1 B.2.4.2 and annex C.
    """
    while len(segment) >= 17:
        counts = segment[1:17]
        rest = segment[17:]
        yield segment[0], Table(counts, rest[: sum(counts)])
        segment = rest[sum(counts) :]


def codes_of(table: Table) -> Codes:
    """Annex C: codes of one length count upwards, and the next longer ones go on from there."""
    found: dict[tuple[int, int], int] = {}
    code = 0
    remaining = iter(table.symbols)
    for length, number in enumerate(table.counts, 1):
        for _, symbol in zip(range(number), remaining, strict=False):
            found[length, code] = symbol
            code += 1
        code <<= 1
    return found


@dataclass(slots=True)
class Bits:
    """Read from the left."""

    text: str
    position: int = 0

    @property
    def are_used_up(self) -> bool:
        """More was read than there is."""
        return self.position > len(self.text)

    def symbol(self, codes: Codes) -> int:
        """The next symbol; 0 for bits that are no code."""
        code = 0
        for length in range(1, _NO_CODE_BITS):
            code = code << 1 | (
                self.text[self.position + length - 1 : self.position + length] == "1"
            )
            if (length, code) in codes:
                self.position += length
                return codes[length, code]
        self.position += _NO_CODE_BITS
        return 0

    def take(self, count: int) -> int:
        """So many bits as a number."""
        taken = self.text[self.position : self.position + count]
        self.position += count
        return int(taken or "0", 2)


def differences(bits: Bits, codes: Codes) -> Iterator[int]:
    """Of lossless JPEG's samples to their predictions (H.1.2.2), as far as the bits reach."""
    while True:
        difference = _difference(bits, bits.symbol(codes))
        if bits.are_used_up:
            return
        yield difference


def _difference(bits: Bits, category: int) -> int:
    """Table H.2: category 16 stands alone, for 32768."""
    if category in (0, 16):
        return 0x8000 if category else 0
    value = bits.take(category)
    return value if value >> (category - 1) else value - (1 << category) + 1


def changes(bits: Bits, dc: Codes, ac: Codes) -> Iterator[bool]:
    """For each block, whether it has a DC difference or a coefficient (F.2.2).

    As many blocks as the bits reach.
    """
    while True:
        is_change = _is_change(bits, dc, ac)
        if bits.are_used_up and not is_change:
            return
        yield is_change


def _is_change(bits: Bits, dc: Codes, ac: Codes) -> bool:
    category = bits.symbol(dc)
    bits.take(category)
    sizes = 0
    at = 0
    while at < _COEFFICIENTS and (symbol := bits.symbol(ac)):
        bits.take(symbol & 0x0F)
        sizes += symbol & 0x0F
        at += (symbol >> 4) + 1
        if not symbol & 0x0F and symbol != _ZERO_RUN:
            break  # F.1.2.2: any other run without a coefficient ends the block
    return bool(category or sizes)
