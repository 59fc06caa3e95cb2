"""`find`: studies by what stands in stored headers alone. What is looked for goes into no log and no row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hilum.receive.patient import Owner
from hilum.receive.refusals import CannotUnderstand
from hilum.store.header_views import StoredHeader
from hilum.store.views import LedgerViews


def find(views: LedgerViews, sought: Owner, since: float | None = None) -> Iterator[dict[str, Any]]:
    """Each study of which a header names it, as `LedgerViews.study` tells it, as soon as it is found, newest image first.

    Every header is read, about a million a minute; `since`: of images received then (seconds since the epoch) or later. Raises Retry.
    """
    found: set[str] = set()
    for stored in _headers(views, since):
        uid = stored.study_instance_uid
        if uid not in found and _names(views, stored, sought) and (detail := views.study(uid)) is not None:
            found.add(uid)
            yield detail


def _headers(views: LedgerViews, since: float | None) -> Iterator[StoredHeader]:
    last: int | None = None
    while headers := views.headers_before(last, since):
        yield from headers
        last = headers[-1].row_id


def _names(views: LedgerViews, stored: StoredHeader, sought: Owner) -> bool:
    try:
        return sought.is_of(stored.beginning if stored.is_whole else views.whole_header(stored.row_id), stored.transfer_syntax_uid)
    except CannotUnderstand:
        return False  # it was read up to its pixels when it was stored
