"""Of an encoded header the elements that somebody wants, still encoded.

Pydicom takes its time for each element that it reads.
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
    """The top-level elements in `wanted` of a header in Explicit VR Little Endian (PS3.5 7.1.2).

    The whole header where `places` finds no way through it: whatever is wrong or unusual in it is
    for pydicom to settle.
    """
    found = places(header, wanted)
    return (
        header
        if found is None
        else b"".join([header[start:end] for _, start, _, end in found.values()])
    )


def places(header: bytes, wanted: Container[int]) -> dict[int, ElementPlace] | None:
    """Where these elements are, by tag.

    Of one that stands there twice the last counts, as for pydicom.

    None: the header cannot be walked by its lengths alone. It has not the encoding that was
    promised, an undefined length, or one that reaches beyond the end; or it has more elements than
    a header may have.
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
