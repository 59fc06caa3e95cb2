"""Opaque page cursors: the sort key of the last row of a page, so that rows added meanwhile neither repeat nor hide another."""

from __future__ import annotations

import base64
import binascii
import json
import math

from hilum.store.schema import MAXIMUM_ROW_ID


class BadCursor(ValueError):
    """The text is not a cursor of this list; leave it out to begin at the first page."""


def encode(listing: str, moment: float, row_id: int) -> str:
    """Cursor after the row with this key, valid for `listing` only."""
    text = json.dumps([listing, moment, row_id], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(listing: str, cursor: str) -> tuple[float, int]:
    """(moment, row id) of a cursor that `encode` made for this listing. Raises BadCursor."""
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise BadCursor("not a cursor of this server") from error
    if not isinstance(found, list) or len(found) != 3 or found[0] != listing:
        raise BadCursor("a cursor of another list or order")
    _, moment, row_id = found
    if not isinstance(moment, float) or not math.isfinite(moment) or type(row_id) is not int or not 0 <= row_id <= MAXIMUM_ROW_ID:
        raise BadCursor("not a cursor of this server")
    return moment, row_id
