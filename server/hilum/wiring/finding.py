"""`find`: studies by what stands in stored headers alone. What is looked for goes into no log and no row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from hilum.receive.patient import Owner
from hilum.receive.refusals import CannotUnderstand
from hilum.store.header_views import StoredHeader
from hilum.store.views import LedgerViews


class Sought(Owner, Protocol):
    """A number by which somebody asks."""

    def issuer_in(self, header: bytes | memoryview, transfer_syntax_uid: str) -> str:
        """Who has issued such a number in a header; empty: it does not say. Raises CannotUnderstand."""


def find(views: LedgerViews, sought: Sought, since: float | None = None) -> Iterator[dict[str, Any]]:
    """Each study of which a header names it, as `LedgerViews.study` tells it, as soon as it is found, newest image first.

    `issuer` is added: who has issued the number in that header, because two hospitals may have issued the same.
    Every header is read, about a million a minute; `since`: of images received then (seconds since the epoch) or later. Raises Retry.
    """
    found: set[str] = set()
    for stored in _headers(views, since):
        uid = stored.study_instance_uid
        if uid not in found and (issuer := _issuer(views, stored, sought)) is not None and (detail := views.study(uid)) is not None:
            found.add(uid)
            yield {**detail, "issuer": issuer}


def _headers(views: LedgerViews, since: float | None) -> Iterator[StoredHeader]:
    last: int | None = None
    while headers := views.headers_before(last, since):
        yield from headers
        last = headers[-1].row_id


def _issuer(views: LedgerViews, stored: StoredHeader, sought: Sought) -> str | None:
    """None: the header does not name it."""
    header, syntax = stored.beginning if stored.is_whole else views.whole_header(stored.row_id), stored.transfer_syntax_uid
    try:
        return sought.issuer_in(header, syntax) if sought.is_of(header, syntax) else None
    except CannotUnderstand:
        return None  # it was read up to its pixels when it was stored
