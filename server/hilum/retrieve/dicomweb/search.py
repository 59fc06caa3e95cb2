"""QIDO-RS: a query, page by page, until there are no more answers (PS3.18 10.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hilum.retrieve.dicomweb.search_page import Page, page_of
from hilum.retrieve.dicomweb.search_request import PARENT, parents_of, search_request, uid_of
from hilum.retrieve.dicomweb.session import WebSession
from hilum.retrieve.source import Answer, Answers, Level, Query, SourceError
from hilum.settings import DicomwebSource
from hilum.web.limits import TimeLimit

PAGE: Final = 100
"""Answers of one request; Azure refuses more than 200."""
FEWEST_CUT: Final = 5
"""No server is set to give fewer answers than this, so fewer are all."""
_NO_LIMIT: Final = 1 << 31
_CHILDREN: Final = {
    Level.SERIES: "NumberOfStudyRelatedSeries",
    Level.IMAGE: "NumberOfSeriesRelatedInstances",
}


@dataclass(slots=True)
class _Found:
    """The answers so far.

    `place`: that of the last answer in the server's list, from 0. `has_more`: it said so last.
    """

    items: dict[str, Answer] = field(default_factory=dict)
    place: int = 0
    last_uid: str = ""
    is_cut_off: bool = False
    has_more: bool = False
    ignored: set[str] = field(default_factory=set)

    @property
    def offset(self) -> int | None:
        """Where the next page begins: with the last answer, which shows whether the list moved."""
        return self.place if self.items else None

    def add(self, page: Page, uids: Sequence[str]) -> bool:
        """Add a page; return whether it brings something new."""
        self.is_cut_off |= page.warnings.is_other or page.is_refused
        self.ignored |= page.warnings.ignored
        if self.items and self.last_uid not in uids:
            # Answers were removed meanwhile, or their order is not stable: some may be left out.
            self.is_cut_off = True
        if all(uid in self.items for uid in uids):
            self._end(page)
            return False
        self.place += len(uids) - 1
        self.last_uid = uids[-1]
        self.has_more = page.warnings.has_more
        self.items |= zip(uids, page.items, strict=True)
        return True

    def _end(self, page: Page) -> None:
        """There is nothing new. More may be there, if it says so, or repeats a page.

        It repeats one if it honours `limit` and ignores `offset`.
        """
        is_repeated = len(page.items) == page.asked
        self.is_cut_off |= self.has_more or page.warnings.has_more or is_repeated


class Search:
    """Queries to one server. Errors: SourceError."""

    def __init__(self, session: WebSession, settings: DicomwebSource) -> None:
        self._session = session
        self._settings = settings
        # So many studies it has given as answer to one query: fewer are not its limit.
        self._studies_given = 0

    def find(self, query: Query) -> Answers:
        """Return the matches of a query; see `ImageSource.find`."""
        limit = TimeLimit(self._settings.request_seconds)
        found = _Found()
        for size in _sizes(query.limit + 1, found):
            page = self.page(query, size, found.offset, limit)
            uids = [uid_of(item, query.level) for item in page.items]
            if not found.add(page, uids) or not _is_another_wanted(query, page, found):
                break
        else:
            found.is_cut_off = True
        count = len(found.items)
        found.is_cut_off |= count > query.limit
        return Answers(
            tuple(found.items.values()),
            is_cut_off=found.is_cut_off or self._holds_more(query, count, limit),
            ignored=tuple(sorted(found.ignored)),
        )

    def page(self, query: Query, size: int, offset: int | None, limit: TimeLimit) -> Page:
        """Return one page of a query. `offset` None: the first."""
        request = search_request(query, self._settings.ignores, size, offset)
        with self._session.answer(request, limit) as response:
            page = page_of(response, query, size)
            if page is None:
                raise self._session.problem(request, response)
            return page

    def _holds_more(self, query: Query, count: int, limit: TimeLimit) -> bool:
        """Return whether it may hold more matches, though it claims to have given all.

        Orthanc with LimitFindResults ends a list there, without a word.
        """
        if count < FEWEST_CUT:
            return False
        if query.level is not Level.STUDY:
            return self._counts_more(query, count, limit)
        if self._studies_given <= count:
            self._studies_given = self._given(count, limit)
        return self._studies_given <= count

    def _given(self, count: int, limit: TimeLimit) -> int:
        """Return how many studies it gives, asked for one more than `count` without any key."""
        is_one_page = count < PAGE
        size = count + 1 if is_one_page else 1
        offset = 0 if is_one_page else count
        try:
            page = self.page(Query(Level.STUDY, {}, size), size, offset or None, limit)
        except SourceError as error:
            if error.is_outage:
                raise
            return _NO_LIMIT
        if page.is_refused:  # a server that refuses a wide query does not cut it off in silence
            return _NO_LIMIT
        given = len(page.items)
        # More than asked for: it ignores `limit`, and perhaps `offset`.
        return given if given > size else given + offset

    def _counts_more(self, query: Query, count: int, limit: TimeLimit) -> bool:
        """Return whether the level above counts more children than were found."""
        parents = parents_of(query.level)
        if any(value and keyword not in parents for keyword, value in query.keys.items()):
            return False
        number = _CHILDREN[query.level]
        keys = {keyword: query.keys[keyword] for keyword in parents}
        counted = Query(PARENT[query.level], {**keys, number: ""}, 1)
        own = parents[-1]
        counts = [
            item.get(number, "")
            for item in self.page(counted, 2, None, limit).items
            if item.get(own) == keys[own]
        ]
        return any(text.isdecimal() and int(text) > count for text in counts)


def _sizes(wanted: int, found: _Found) -> Iterator[int]:
    """Yield how many answers to ask for next; it ends, for some servers never do."""
    yield min(PAGE, wanted)
    for _ in range(2 * wanted // PAGE + 4):
        yield min(PAGE, max(1, wanted - len(found.items)) + 1)


def _is_another_wanted(query: Query, page: Page, found: _Found) -> bool:
    """Return whether there may be more; a short page is not the end.

    The server may have a smaller page than ours.
    """
    count = len(found.items)
    if count > query.limit:
        return False
    return count >= FEWEST_CUT or page.is_full or page.warnings.has_more
