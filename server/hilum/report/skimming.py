"""Of an encoded header the elements that somebody wants, still encoded: pydicom takes its time for each element that it reads."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from pydicom.valuerep import EXPLICIT_VR_LENGTH_16, EXPLICIT_VR_LENGTH_32

_HEAD: Final = struct.Struct("<HH2sH")
_LONG: Final = struct.Struct("<L")
_SHORT_VRS: Final = frozenset(vr.encode() for vr in EXPLICIT_VR_LENGTH_16)
_LONG_VRS: Final = frozenset(vr.encode() for vr in EXPLICIT_VR_LENGTH_32)


def skimmed(header: bytes, wanted: frozenset[int]) -> bytes:
    """The top-level elements in `wanted` of a header in Explicit VR Little Endian (PS3.5 7.1.2).

    The whole header where it cannot be walked by its lengths alone: whatever is wrong or unusual in it is for pydicom to settle.
    """
    try:
        return b"".join([header[start:end] for tag, start, end in _walk(header) if tag in wanted])
    except (struct.error, _Unusual):
        return header


class _Unusual(Exception):
    """Not the encoding that was promised, an undefined length, or one that reaches beyond the end."""


def _walk(header: bytes) -> Iterator[tuple[int, int, int]]:
    """Tag, where the element begins, where it ends."""
    start = 0
    while start < len(header):
        group, number, vr, length = _HEAD.unpack_from(header, start)
        end = start + _HEAD.size + length
        if vr in _LONG_VRS:
            (length,) = _LONG.unpack_from(header, start + _HEAD.size)
            end = start + _HEAD.size + _LONG.size + length
        elif vr not in _SHORT_VRS:
            raise _Unusual
        if end > len(header):
            raise _Unusual
        yield group << 16 | number, start, end
        start = end
