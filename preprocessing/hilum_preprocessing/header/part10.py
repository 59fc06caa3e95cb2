"""The beginning of a DICOM file: preamble, prefix, and the length of group 0002 (PS3.10 7.1).

Torch-free.
"""

from __future__ import annotations

from typing import Final

PREAMBLE_BYTES: Final = 128
DICM: Final = b"DICM"
PREFIX: Final = bytes(PREAMBLE_BYTES) + DICM
"""What we write, up to File Meta Information. A preamble of others may hold anything."""
META_START: Final = len(PREFIX)
GROUP_LENGTH: Final = b"\x02\x00\x00\x00UL\x04\x00"
"""(0002,0000) up to its value, four bytes: the length of the rest of the group."""
_FIRST_BYTES: Final = META_START + len(GROUP_LENGTH) + 4


def is_part10(beginning: bytes | memoryview) -> bool:
    """Return whether a file begins as the standard wants it."""
    return bytes(beginning[PREAMBLE_BYTES:META_START]) == DICM


def beginning_of(meta: bytes) -> bytes:
    """Return preamble, prefix and group 0002, given the encoded rest of the group."""
    return PREFIX + GROUP_LENGTH + len(meta).to_bytes(4, "little") + meta


def data_set_start(file: bytes | memoryview) -> int:
    """Return where the data set begins in a file that has (0002,0000), as we write it."""
    return _FIRST_BYTES + int.from_bytes(file[_FIRST_BYTES - 4 : _FIRST_BYTES], "little")
