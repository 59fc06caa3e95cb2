"""Does the entropy-coded data of a JPEG codestream end where its last row ends? Torch-free.

JPEG has no checksum, and libjpeg always reports success: it fills missing data, and skips surplus
data. A cut, or a damaged bit that makes a code longer or shorter, moves everything after it, so
that the data end too early or too late.

To see that, the decoder is asked for a few more rows than there are, and known bits are appended to
the data. If the picture took all of its data and nothing else, the additional rows are the meaning
of those bits: of lossless JPEG to the bit, else to the block. A block that is darker than black
looks the same as before, so then other bits are tried.

No decoder can see damage that leaves the number of bits alone. This one cannot see a cut within the
last block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.codecs.huffman import Bits, Table, changes, codes_of, differences
from hilum_preprocessing.codecs.markers import BASELINE, EXTENDED, LOSSLESS, JpegHeader
from hilum_preprocessing.header.encapsulation import Codestream

_COMPARED: Final = 16  # additional samples or blocks
_NOISE: Final = "".join(
    f"{byte:08b}"
    for byte in bytes.fromhex("a53c96e15ad2784b1d87f0692eb4c35a0f9678e14b2dd287c3695ab41ef03ca5")
)
NOISES: Final = tuple(_NOISE[turn:] + _NOISE[:turn] for turn in range(0, 256, 32))
"""Bits to append to the data; the next ones are tried where the first show nothing.

See `may_be_hidden`.
"""

# No Huffman code is all ones (C.2): libjpeg takes 17 of them for "no difference", so these are four
# blocks, with 8 bits to spare.
_NO_CHANGE: Final = "1" * 144
_NO_CHANGE_BLOCKS: Final = 4
_LARGEST_ROWS: Final = 65500  # libjpeg's JPEG_MAX_DIMENSION
_STUFFED: Final = b"\xff\x00"
_END_OF_IMAGE: Final = b"\xff\xd9"


def additional_rows(found: JpegHeader) -> int:
    """Rows to ask for beyond the picture's own.

    0 where the end cannot be checked: several components or scans, restart intervals.
    """
    is_sequential = found.marker in (BASELINE, EXTENDED, LOSSLESS)
    if not is_sequential or found.components != 1 or found.restart_interval or not _tables(found):
        return 0
    side = _side(found)
    wanted = -found.rows % side + side * -(-_COMPARED // -(-found.columns // side))
    return wanted if found.rows + wanted <= _LARGEST_ROWS else 0


def extended(codestream: Codestream, found: JpegHeader, rows: int, noise: str) -> bytes:
    """The codestream with so many additional rows, and the bits for them."""
    height = (found.rows + rows).to_bytes(2, "big")
    behind = _behind(found, noise)
    known = (
        int(behind + "1" * (-len(behind) % 8), 2)
        .to_bytes(-(-len(behind) // 8), "big")
        .replace(b"\xff", _STUFFED)
    )
    data = memoryview(codestream)
    return b"".join(
        (
            data[: found.rows_at],
            height,
            data[found.rows_at + 2 : found.scan.stop],
            known,
            _END_OF_IMAGE,
        )
    )


def ends_in_time(
    codestream: Codestream, found: JpegHeader, array: NDArray[Any], noise: str
) -> bool:
    """Whether the data ended with the picture's last row.

    The additional rows of the decoded array decide.
    """
    ends = _samples_end if found.marker == LOSSLESS else _blocks_end
    return ends(_last_byte(codestream, found), found, array, noise)


def may_be_hidden(
    codestream: Codestream, found: JpegHeader, array: NDArray[Any], noise: str
) -> bool:
    """Whether a block that should differ may do so unseen.

    Cut off at black or white, or by less than half a grey level.
    """
    if found.marker == LOSSLESS:
        return False
    expected = _expected_blocks(_last_byte(codestream, found), found, noise)
    seen = _additional_blocks(found, array)
    first = seen.index(True) if True in seen else len(seen)
    return any(True in blocks[:first] for blocks in expected)


def _side(found: JpegHeader) -> int:
    return 1 if found.marker == LOSSLESS else 8


def _tables(found: JpegHeader) -> tuple[Table, ...]:
    """Of differences, or of DC and AC coefficients; none when one is missing."""
    wanted = (
        (found.scan_tables >> 4,)
        if found.marker == LOSSLESS
        else (found.scan_tables >> 4, 0x10 | found.scan_tables & 0x0F)
    )
    there = tuple(found.tables[at] for at in wanted if at in found.tables)
    return there if len(there) == len(wanted) and all(table.symbols for table in there) else ()


def _behind(found: JpegHeader, noise: str) -> str:
    """The known bits: differences of any kind, or blocks without any and then some with."""
    return noise if found.marker == LOSSLESS else _NO_CHANGE + 2 * noise


def _last_byte(codestream: Codestream, found: JpegHeader) -> str:
    """In binary. A stuffed zero (B.1.1.5) is none."""
    last = bytes(codestream[max(found.scan.start, found.scan.stop - 2) : found.scan.stop])
    return f"{0xFF if last == _STUFFED else last[-1]:08b}" if last else ""


def _paddings(last_byte: str, bits: str) -> Iterator[str]:
    """The possible padding of the last byte.

    F.1.2.3 demands ones; lossless JPEG was seen with zeros.
    """
    for bit in bits:
        yield from (
            bit * count for count in range(min(7, len(last_byte) - len(last_byte.rstrip(bit))) + 1)
        )


def _samples_end(last_byte: str, found: JpegHeader, array: NDArray[Any], noise: str) -> bool:
    """The additional samples are those that the known bits stand for."""
    seen = array[found.rows :].astype(np.int64).ravel()[:_COMPARED]
    for padding in _paddings(last_byte, "10"):
        steps = list(_steps_behind(padding + noise, *_tables(found)))
        expected = _expected_samples(found, array, steps)
        if np.array_equal(seen[: len(expected)], expected[: len(seen)]):
            return True
    return False


def _expected_samples(
    found: JpegHeader, array: NDArray[Any], steps: list[int]
) -> NDArray[np.int64]:
    """Below the picture's last row; predictions precede the point transform (H.1.2.1)."""
    last_row = array[found.rows - 1].astype(np.int64) >> found.point_transform
    samples = _predicted(last_row, steps, found.scan_parameter) << found.point_transform
    return np.asarray(samples % (1 << (8 * array.itemsize)))


def _predicted(above: NDArray[np.int64], steps: list[int], predictor: int) -> NDArray[np.int64]:
    """The samples that these differences make, below a row (Table H.1; modulo 2^16 by H.1.2.1)."""
    width = len(above)
    rows = [above.tolist()]
    for start in range(0, len(steps), width):
        row: list[int] = []
        for at, step in enumerate(steps[start : start + width]):
            row.append((_prediction(row, rows[-1], at, predictor) + step) & 0xFFFF)
        rows.append(row)
    return np.array([sample for row in rows[1:] for sample in row], np.int64)


def _prediction(row: list[int], above: list[int], at: int, predictor: int) -> int:
    if at == 0:
        return above[0]  # H.1.2.1: the first sample of a row is predicted from the one above it
    a = row[-1]
    b = above[at]
    c = above[at - 1]
    return (0, a, b, c, a + b - c, a + (b - c >> 1), b + (a - c >> 1), a + b >> 1)[predictor & 7]


def _blocks_end(last_byte: str, found: JpegHeader, array: NDArray[Any], noise: str) -> bool:
    """The first additional block that differs is the one where the run of ones ends."""
    seen = _additional_blocks(found, array)
    return any(
        _up_to_first(seen) == _up_to_first(blocks[: len(seen)])
        for blocks in _expected_blocks(last_byte, found, noise)
    )


def _expected_blocks(last_byte: str, found: JpegHeader, noise: str) -> Iterator[list[bool]]:
    """For each possible padding of the last byte, the additional blocks that change.

    A block changes where it has another value than the one before.
    """
    tables = _tables(found)
    return (
        list(_blocks_behind(padding + _behind(found, noise), *tables))
        for padding in _paddings(last_byte, "1")
    )


# A device writes the same tables into every picture, and to go through the bits takes half as long
# as to decode the picture.
@lru_cache(maxsize=256)
def _steps_behind(bits: str, table: Table) -> tuple[int, ...]:
    return tuple(islice(differences(Bits(bits), codes_of(table)), _COMPARED))


@lru_cache(maxsize=256)
def _blocks_behind(bits: str, dc: Table, ac: Table) -> tuple[bool, ...]:
    return tuple(islice(changes(Bits(bits), codes_of(dc), codes_of(ac)), _COMPARED))


def _up_to_first(blocks: list[bool]) -> list[bool]:
    return blocks[: blocks.index(True) + 1] if True in blocks else blocks[:_NO_CHANGE_BLOCKS]


def _additional_blocks(found: JpegHeader, array: NDArray[Any]) -> list[bool]:
    return _differing_blocks(array[-(-found.rows // 8) * 8 :])[:_COMPARED]


def _differing_blocks(rows: NDArray[Any]) -> list[bool]:
    """For each block of 8 x 8, whether it has another value than the first pixel.

    The last block in a row may be narrower.
    """
    rows = rows[: len(rows) // 8 * 8]
    by_column = np.logical_or.reduceat(rows != rows[0, 0], np.arange(0, rows.shape[1], 8), axis=1)
    return list(
        np.logical_or.reduceat(by_column, np.arange(0, len(rows), 8), axis=0).ravel().tolist()
    )
