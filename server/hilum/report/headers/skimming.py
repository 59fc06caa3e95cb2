"""Extracts chosen elements of an encoded header, still encoded.

Pydicom needs more time for each element that it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import Final, NamedTuple

from pydicom.valuerep import EXPLICIT_VR_LENGTH_16, EXPLICIT_VR_LENGTH_32

from hilum_preprocessing.header.structure import MAXIMUM_ELEMENTS

_HEAD: Final = struct.Struct("<HH2sH")
_LONG: Final = struct.Struct("<L")
_SHORT_VRS: Final = frozenset(vr.encode() for vr in EXPLICIT_VR_LENGTH_16)
_LONG_VRS: Final = frozenset(vr.encode() for vr in EXPLICIT_VR_LENGTH_32)


class ElementPlace(NamedTuple):
    """Where an element of an encoded header begins, where its value begins, and where both end.

    With the VR that it claims.
    """

    vr: bytes
    start: int
    value: int
    end: int


def skimmed(header: bytes, wanted: Container[int]) -> bytes:
    """Return the elements in `wanted` of a header in Explicit VR Little Endian (PS3.5 7.1.2).

    It is the whole header where `places` finds no way through it: pydicom deals with any fault.
    """
    found = places(header, wanted)
    return (
        header
        if found is None
        else b"".join([header[start:end] for _, start, _, end in found.values()])
    )


def places(header: bytes, wanted: Container[int]) -> dict[int, ElementPlace] | None:
    """Return where these top-level elements are, by tag.

    Of an element that occurs twice the last counts, as for pydicom.

    None: the header cannot be walked by its lengths alone. Its encoding is another one, a length is
    undefined or reaches beyond the end, or it has more elements than a header may have.
    """
    found: dict[int, ElementPlace] = {}
    unpack = _HEAD.unpack_from
    size = len(header)
    start = 0
    try:
        for _ in range(MAXIMUM_ELEMENTS):
            if start >= size:
                return found
            group, number, vr, length = unpack(header, start)
            value = start + 8
            if vr not in _SHORT_VRS:
                if vr not in _LONG_VRS:
                    return None
                (length,) = _LONG.unpack_from(header, value)
                value += 4
            end = value + length
            if end > size:
                return None
            if (tag := group << 16 | number) in wanted:
                found[tag] = ElementPlace(vr, start, value, end)
            start = end
    except struct.error:
        return None
    return None
