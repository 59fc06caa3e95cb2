"""The header of an image as its row keeps it.

Large elements that are not read stay in the file, and leave with it. A header before Pixel Data has
3 KB mostly, and megabytes with overlay planes, icons or private data. With the pixels all but the
identity of patient and order leaves the row, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydicom.uid import ExplicitVRBigEndian, ImplicitVRLittleEndian
from sqlalchemy import Connection, and_, func, insert, select, update

from hilum.store.schema.tables import installation, instance
from hilum_preprocessing.header.structure import TooComplex, top_level

MAXIMUM_BYTES: Final = 64 << 10
"""The most bytes of a header in its row."""
_WHOLE_BYTES: Final = 8 << 10  # up to here a header is kept as it is
_LONGEST_BYTES: Final = 16 << 10  # of an element in a longer header
_LONGEST_IDENTIFYING_BYTES: Final = 2 << 10
# PS3.5 7.6: repeating groups, of which the lowest byte counts
_OVERLAYS = 0x6000
_OVERLAY_DATA = 0x3000
_CURVES = 0x5000
_ICON_IMAGE_SEQUENCE: Final = 0x00880200
# Attributes that find a patient, an order and a study, those that a report must have (type 2), and
# those that it tells of an image.
IDENTIFYING: Final = frozenset(
    (
        0x00080005,  # Specific Character Set
        0x00080016,  # SOP Class UID
        0x00080018,  # SOP Instance UID
        0x00080020,  # Study Date
        0x00080030,  # Study Time
        0x00080050,  # Accession Number
        0x00080051,  # Issuer of Accession Number Sequence
        0x00080060,  # Modality
        0x00080090,  # Referring Physician's Name
        0x00080201,  # Timezone Offset From UTC
        0x00100010,  # Patient's Name
        0x00100020,  # Patient ID
        0x00100021,  # Issuer of Patient ID
        0x00100030,  # Patient's Birth Date
        0x00100040,  # Patient's Sex
        0x00101000,  # Other Patient IDs
        0x00181164,  # Imager Pixel Spacing
        0x0020000D,  # Study Instance UID
        0x0020000E,  # Series Instance UID
        0x00200010,  # Study ID
        0x00200020,  # Patient Orientation
        0x00280010,  # Rows
        0x00280011,  # Columns
        0x00380010,  # Admission ID
    )
)
_SHORTENED: Final = "headers_shortened"
_AT_ONCE: Final = 200  # rows of one look
_Part = tuple[int, int, int]
_SIZES = select(
    instance.c.id,
    instance.c.digest,
    instance.c.transfer_syntax_uid,
    instance.c.pixels_removed_at,
    func.length(instance.c.header).label("size"),
)


def kept(header: bytes | memoryview, transfer_syntax_uid: str) -> bytes:
    """The header of an image whose pixels are there.

    At most `MAXIMUM_BYTES`, without bulk; the largest elements leave first.
    """
    if len(header) <= _WHOLE_BYTES:
        return bytes(header)
    parts = [part for part in _parts(header, transfer_syntax_uid) if not _is_bulk(*part)]
    return _joined(header, _within(parts, MAXIMUM_BYTES))


def identifying(header: bytes | memoryview, transfer_syntax_uid: str) -> bytes:
    """The identifying header of an image whose pixels have left."""
    parts = [part for part in _parts(header, transfer_syntax_uid) if part[0] in IDENTIFYING]
    return _joined(header, [part for part in parts if _size(part) <= _LONGEST_IDENTIFYING_BYTES])


def shorten_some(connection: Connection) -> int:
    """Shorten headers of some rows of an earlier version, and return the number of rows.

    0: there are no more. The position is written down: each row is looked at once.
    """
    last = connection.execute(
        select(installation.c.value).where(installation.c.key == _SHORTENED)
    ).scalar_one_or_none()
    after = instance.c.id > (0 if last is None else json.loads(last))
    rows = connection.execute(_SIZES.where(after).order_by(instance.c.id).limit(_AT_ONCE)).all()
    for row in rows:
        _shorten(connection, row)
    if rows:
        _remember(connection, json.dumps(rows[-1].id), is_first=last is None)
    return len(rows)


def _shorten(connection: Connection, row: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own type names every column
    if row.size <= (_WHOLE_BYTES if row.pixels_removed_at is None else 0):
        return
    has_pixels = row.pixels_removed_at is None
    header = connection.execute(
        select(instance.c.header).where(instance.c.id == row.id)
    ).scalar_one()
    shortened = (kept if has_pixels else identifying)(header, row.transfer_syntax_uid)
    if len(shortened) < len(header):
        # Unless it was sent again meanwhile.
        same = and_(
            instance.c.id == row.id,
            instance.c.digest == row.digest,
            instance.c.pixels_removed_at.is_(None) == has_pixels,
        )
        connection.execute(update(instance).where(same).values(header=shortened))


def _remember(connection: Connection, value: str, *, is_first: bool) -> None:
    if is_first:
        connection.execute(insert(installation).values(key=_SHORTENED, value=value))
    else:
        connection.execute(
            update(installation).where(installation.c.key == _SHORTENED).values(value=value)
        )


def _parts(header: bytes | memoryview, transfer_syntax_uid: str) -> Iterator[_Part]:
    """Yield tag, beginning and end of the elements.

    Of a header that cannot be walked to its end, those before the fault.
    """
    is_implicit = transfer_syntax_uid == ImplicitVRLittleEndian
    try:
        yield from top_level(
            header,
            is_implicit=is_implicit,
            order=">" if transfer_syntax_uid == ExplicitVRBigEndian else "<",
        )
    except TooComplex:  # of an earlier version, which refused none
        return


def _is_bulk(tag: int, start: int, end: int) -> bool:
    group = tag >> 16
    number = tag & 0xFFFF
    repeating = group & 0xFF00
    is_overlay = repeating == _OVERLAYS and number == _OVERLAY_DATA
    is_private = group % 2 == 1
    is_long = end - start > _LONGEST_BYTES and tag not in IDENTIFYING
    return (
        is_overlay or is_private or is_long or repeating == _CURVES or tag == _ICON_IMAGE_SEQUENCE
    )


def _within(parts: list[_Part], limit: int) -> list[_Part]:
    """The elements that fit, in their order.

    Identifying ones first, and of these the small before the large.
    """
    chosen: set[_Part] = set()
    for part in sorted(parts, key=lambda part: (part[0] not in IDENTIFYING, _size(part))):
        limit -= _size(part)
        if limit < 0:
            break
        chosen.add(part)
    return [part for part in parts if part in chosen]


def _size(part: _Part) -> int:
    return part[2] - part[1]


def _joined(header: bytes | memoryview, parts: Iterable[_Part]) -> bytes:
    return b"".join([header[start:end] for _, start, end in parts])
