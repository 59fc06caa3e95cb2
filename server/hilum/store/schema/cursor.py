"""Opaque page cursors: the sort key of the last row of a page.

Rows that are added meanwhile neither repeat nor hide another.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

from hilum.store.schema.tables import MAXIMUM_ROW_ID

Place = tuple[int, int, int]
"""A row's place in the order of changes: number of its change, table, row id."""
_CHANGES = "changes"
_MAXIMUM_PLACE: Place = (2**63 - 1, 2, MAXIMUM_ROW_ID)


class BadCursor(ValueError):
    """The text is not a cursor of this list; leave it out to begin at the first page."""


def encode(listing: str, moment: float, row_id: int) -> str:
    """Cursor after the row with this key, valid for `listing` only."""
    return _encode(listing, moment, row_id)


def decode(listing: str, cursor: str) -> tuple[float, int]:
    """(moment, row id) of a cursor that `encode` made for this listing. Raises BadCursor."""
    moment, row_id = _decode(listing, cursor, 2)
    if (
        not isinstance(moment, float)
        or not math.isfinite(moment)
        or not _is_number(row_id, MAXIMUM_ROW_ID)
    ):
        raise _not_ours()
    return moment, row_id


def encode_place(place: Place) -> str:
    """Cursor after this place in the order of changes."""
    return _encode(_CHANGES, *place)


def decode_place(cursor: str) -> Place:
    """The place of a cursor that `encode_place` made. Raises BadCursor."""
    change, rank, row_id = _decode(_CHANGES, cursor, 3)
    if not all(
        _is_number(value, most)
        for value, most in zip((change, rank, row_id), _MAXIMUM_PLACE, strict=True)
    ):
        raise _not_ours()
    return change, rank, row_id


def _encode(*values: str | float) -> str:
    text = json.dumps(values, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(listing: str, cursor: str, size: int) -> list[Any]:
    try:
        found = json.loads(
            base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        )
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _not_ours() from error
    if not isinstance(found, list) or len(found) != size + 1 or found[0] != listing:
        raise BadCursor("a cursor of another list or order")
    return found[1:]


def _is_number(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _not_ours() -> BadCursor:
    return BadCursor("not a cursor of this server")
