"""Elements of an encoded header, still encoded: found by their lengths, without pydicom.

pydicom takes its time for each element that it reads. The index and its walk are
`hilum_preprocessing.header.element_index`.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from hilum_preprocessing.header.element_index import (
    END,
    EXPLICIT_LITTLE,
    Cursor,
    Element,
    element_of,
    encoding_of,
    index,
    plain_run,
)
from hilum_preprocessing.header.structure import TooComplex


def values_in(
    header: bytes | memoryview, transfer_syntax_uid: str, wanted: Collection[int]
) -> dict[int, bytes]:
    """Return the values of these elements of the top level by tag.

    Values of undefined length are left out. Reading stops at the header of the first element beyond
    the highest of the tags. Raises BrokenDataSet, TooComplex.
    """
    found = index(header, encoding_of(transfer_syntax_uid), wanted, max(wanted) + 1)
    return {
        tag: bytes(header[element.value : element.end])
        for tag, element in found.items()
        if element.end is not None
    }


def places(header: bytes, wanted: Container[int]) -> dict[int, Element] | None:
    """Return the places of these elements in Explicit VR Little Endian by tag.

    Of one that stands there twice the last counts, as for pydicom. None: the header cannot be
    walked by its lengths alone. It has another encoding, an undefined length, or one that reaches
    beyond the end; or it has more elements than a header may have.
    """
    cursor = Cursor()
    try:
        run = plain_run(header, cursor, EXPLICIT_LITTLE, wanted, END)
        found = {place[0]: element_of(place) for place in run}
    except TooComplex:
        return None
    return found if cursor.position == len(header) else None


def skimmed(header: bytes, wanted: Container[int]) -> bytes:
    """Return the top-level elements in `wanted` of a header in Explicit VR Little Endian.

    Return the whole header where `places` finds no way through it, so that pydicom reads it.
    """
    found = places(header, wanted)
    return (
        header
        if found is None
        else b"".join([header[place.start : place.end] for place in found.values()])
    )
