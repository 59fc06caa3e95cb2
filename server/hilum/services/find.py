"""`find`: studies by values that are in stored headers alone.

The values go into no log and no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from hilum.receive.headers.identifiers import AllOf
from hilum.receive.headers.patient import HeaderOwner
from hilum.receive.headers.study_date import StudyDates
from hilum.receive.statuses import CannotUnderstand
from hilum.store.queries.headers import StoredHeader
from hilum.store.queries.views import LedgerViews


class SearchedOwner(HeaderOwner, Protocol):
    """An identifier to search for."""

    def issuer_in(self, header: bytes | memoryview, transfer_syntax_uid: str) -> str:
        """Return the issuer of such a number in a header; empty: the header has none.

        Raises CannotUnderstand.
        """


class ScannedRange(NamedTuple):
    """A header that was read.

    `header`: set if it is the first found that names the owner in its study; None: it is not.
    """

    stored: StoredHeader
    header: bytes | None


def find(
    views: LedgerViews,
    sought: SearchedOwner,
    since: float | None = None,
    dates: StudyDates | None = None,
) -> Iterator[dict[str, Any]]:
    """Return each study with a header that names it, as `LedgerViews.study` does, newest first.

    A study is returned as soon as it is found. `issuer` is added: the issuer of the number in that
    header, because two hospitals may have issued the same number. Every header is read, about a
    million a minute. `since`: of images received then (seconds since the epoch) or later; `dates`:
    of studies made then. Raises Retry.
    """
    owner = sought if dates is None else AllOf((sought, dates))
    for stored, header in look(views, owner, since=since):
        if header is not None and (detail := views.study(stored.study_instance_uid)) is not None:
            yield {**detail, "issuer": sought.issuer_in(header, stored.transfer_syntax_uid)}


def look(
    views: LedgerViews, owner: HeaderOwner, *, since: float | None = None, before: int | None = None
) -> Iterator[ScannedRange]:
    """Return every header before this row id (None: the newest), newest first.

    Of each study the first header that names the owner is marked. A study that a header from
    `before` on names was found by the earlier search.
    """
    found: set[str] = set()
    for stored in _headers(views, since, before):
        uid = stored.study_instance_uid
        header = _naming(views, stored, owner) if uid not in found else None
        if header is not None:
            found.add(uid)
            if before is not None and any(
                _naming(views, other, owner) is not None for other in views.headers_of(uid, before)
            ):
                header = None
        yield ScannedRange(stored, header)


def _headers(views: LedgerViews, since: float | None, before: int | None) -> Iterator[StoredHeader]:
    while headers := views.headers_before(before, since):
        yield from headers
        before = headers[-1].row_id


def _naming(views: LedgerViews, stored: StoredHeader, owner: HeaderOwner) -> bytes | None:
    """Return the header if it names the owner."""
    try:
        return (
            header
            if owner.is_of(header := whole_header(views, stored), stored.transfer_syntax_uid)
            else None
        )
    except CannotUnderstand:
        return None  # it was read up to its pixels when it was stored


def whole_header(views: LedgerViews, stored: StoredHeader) -> bytes:
    """Return all of a header; empty: it was erased meanwhile."""
    return stored.beginning if stored.is_whole else views.whole_header(stored.row_id)
