"""QIDO-RS: a query, page by page, until there are no more answers (PS3.18 10.6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import httpx
from pydicom.datadict import dictionary_VR, tag_for_keyword

from hilum.retrieve.dicomweb.body import bounded
from hilum.retrieve.dicomweb.dicom_json import DicomJsonError, answers
from hilum.retrieve.dicomweb.limits import TimeLimit
from hilum.retrieve.dicomweb.session import WebRequest, WebSession
from hilum.retrieve.source import Answer, Answers, Level, Query, SourceError
from hilum.settings import DicomwebSource

PAGE: Final = 100
"""Answers of one request; Azure refuses more than 200."""
FEWEST_CUT: Final = 5
"""No server is set to give fewer answers than this, so fewer are all."""
_NO_LIMIT: Final = 1 << 31
_BODY_BYTES: Final = 64 << 20
_DICOM_JSON: Final = "application/dicom+json"
_UID: Final = re.compile(r"[0-9]+(\.[0-9]+)*")
_UID_OF: Final = {
    Level.STUDY: "StudyInstanceUID",
    Level.SERIES: "SeriesInstanceUID",
    Level.IMAGE: "SOPInstanceUID",
}
_PARENT: Final = {Level.SERIES: Level.STUDY, Level.IMAGE: Level.SERIES}
_CHILDREN: Final = {
    Level.SERIES: "NumberOfStudyRelatedSeries",
    Level.IMAGE: "NumberOfSeriesRelatedInstances",
}
# Keys whose values name no patient: a text of the server may be shown beside them.
_HARMLESS: Final = re.compile(
    r".*UID|StudyDate|StudyTime|SeriesDate|SeriesTime|Modality|ModalitiesInStudy"
    r"|SOPClassesInStudy|BodyPartExamined|StationName|PatientSex"
)
_WARNING: Final = re.compile(r"299\b")
_MORE: Final = re.compile(r"additional results", re.IGNORECASE)
_FUZZY: Final = re.compile(r"fuzzy", re.IGNORECASE)


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


@dataclass(frozen=True, slots=True)
class PageWarnings:
    """What the Warning headers of an answer say (PS3.18 10.6.3); `is_other`: something else."""

    has_more: bool = False
    is_other: bool = False
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of the server. `is_refused`: it is too large for the server."""

    items: Sequence[Answer]
    asked: int
    warnings: PageWarnings = PageWarnings()
    is_refused: bool = False

    @property
    def is_full(self) -> bool:
        """Whether it holds as many as were asked for."""
        return len(self.items) >= self.asked


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
            offset = found.place if found.items else None
            if not _takes_another(query, self.page(query, size, offset, limit), found):
                break
        else:
            found.is_cut_off = True
        count = len(found.items)
        is_cut_off = found.is_cut_off or count > query.limit
        return Answers(
            tuple(found.items.values()),
            is_cut_off=is_cut_off or self._holds_more(query, count, limit),
            ignored=tuple(sorted(found.ignored)),
        )

    def page(self, query: Query, size: int, offset: int | None, limit: TimeLimit) -> Page:
        """Return one page of a query. `offset` None: the first."""
        parameters = [*_parameters(query, self._settings.ignores), ("limit", str(size))]
        if offset is not None:
            parameters.append(("offset", str(offset)))
        request = WebRequest(
            f"{path_of(query)}?{_encoded(parameters)}",
            _DICOM_JSON,
            is_word_shown=_is_harmless(query.keys),
        )
        with self._session.answer(request, limit) as response:
            if response.status_code == httpx.codes.NO_CONTENT:
                return Page((), size)
            if response.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
                return Page((), size, is_refused=True)
            if response.status_code != httpx.codes.OK:
                raise self._session.problem(request, response)
            return Page(_decoded(response), size, _warnings(response, query))

    def _holds_more(self, query: Query, count: int, limit: TimeLimit) -> bool:
        """Return whether it may hold more matches, though it claims to have given all.

        Orthanc with LimitFindResults ends a list there, without a word.
        """
        if count < FEWEST_CUT:
            return False
        if query.level is Level.STUDY:
            return self._is_at_its_limit(count, limit)
        return self._counts_more(query, count, limit)

    def _is_at_its_limit(self, count: int, limit: TimeLimit) -> bool:
        """Return whether it has never given more studies than these, asked for any study."""
        if self._studies_given > count:
            return False
        is_one_page = count < PAGE
        size = count + 1 if is_one_page else 1
        offset = None if is_one_page else count
        try:
            page = self.page(Query(Level.STUDY, {}, size), size, offset, limit)
        except SourceError as error:
            if error.is_outage:
                raise
            page = Page((), size, is_refused=True)
        if page.is_refused:  # a server that refuses a wide query does not cut it off in silence
            self._studies_given = _NO_LIMIT
        elif len(page.items) <= size:
            self._studies_given = len(page.items) + (offset or 0)
        else:  # it ignores `limit`, and perhaps `offset`
            self._studies_given = len(page.items)
        return self._studies_given <= count

    def _counts_more(self, query: Query, count: int, limit: TimeLimit) -> bool:
        """Return whether the level above counts more children than were found."""
        parents = _parents(query.level)
        if any(value and keyword not in parents for keyword, value in query.keys.items()):
            return False
        keys = {keyword: query.keys[keyword] for keyword in parents}
        number = _CHILDREN[query.level]
        counted = Query(_PARENT[query.level], {**keys, number: ""}, 1)
        page = self.page(counted, 2, None, limit)
        own = parents[-1]
        counts = (item.get(number, "") for item in page.items if item.get(own) == keys[own])
        return any(text.isdecimal() and int(text) > count for text in counts)


def _sizes(wanted: int, found: _Found) -> Iterator[int]:
    """Yield how many answers to ask for next; it ends, for some servers never do.

    From the second page on, the last answer is asked for again: if it has moved, the list has
    changed.
    """
    yield min(PAGE, wanted)
    for _ in range(2 * wanted // PAGE + 4):
        yield min(PAGE, max(1, wanted - len(found.items)) + 1)


def _takes_another(query: Query, page: Page, found: _Found) -> bool:
    """Add a page to the answers; return whether another is to be asked for.

    A short page is not the end: the server may have a smaller page than ours.
    """
    if page.is_refused:
        found.is_cut_off = True
        return False
    has_more = page.warnings.has_more
    found.is_cut_off |= page.warnings.is_other
    found.ignored |= page.warnings.ignored
    uids = [_uid(item, query.level) for item in page.items]
    if found.items and found.last_uid not in uids:
        # Answers were removed meanwhile, or their order is not stable: some may be left out.
        found.is_cut_off = True
    if all(uid in found.items for uid in uids):
        # The end; or a page again, from a server that honours `limit` and ignores `offset`.
        found.is_cut_off |= found.has_more or has_more or len(uids) == page.asked
        return False
    found.place += len(uids) - 1
    found.last_uid = uids[-1]
    found.has_more = has_more
    for uid, item in zip(uids, page.items, strict=True):
        found.items.setdefault(uid, item)
    count = len(found.items)
    return count <= query.limit and (count >= FEWEST_CUT or page.is_full or has_more)


def path_of(query: Query) -> str:
    """Return the path of a query below the root. Raises SourceError without its parents' UIDs."""
    path = "/studies"
    segments = {"StudyInstanceUID": "series", "SeriesInstanceUID": "instances"}
    for keyword in _parents(query.level):
        path += f"/{checked_uid(query.keys.get(keyword, ''), keyword)}/{segments[keyword]}"
    return path


def checked_uid(value: str, keyword: str) -> str:
    """Return a UID that may stand in a path. Raises SourceError."""
    if _UID.fullmatch(value) is None or len(value) > 64:
        raise SourceError(f"{keyword} is no UID, so it cannot be asked for", is_final=True)
    return value


def _parents(level: Level) -> tuple[str, ...]:
    parent = _PARENT.get(level)
    return () if parent is None else (*_parents(parent), _UID_OF[parent])


def _parameters(query: Query, ignores: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys: those with a value match, the others are asked for."""
    in_path = _parents(query.level)
    for keyword, value in query.keys.items():
        if keyword in in_path:
            continue
        if tag_for_keyword(keyword) is None:
            raise SourceError(f"{keyword} is no DICOM keyword; correct it", is_final=True)
        if value and keyword not in ignores:
            is_uid = dictionary_VR(keyword) == "UI"
            yield keyword, value.replace("\\", ",") if is_uid else value
        else:
            yield "includefield", keyword


def _encoded(parameters: Sequence[tuple[str, str]]) -> str:
    return "&".join(f"{name}={quote(value, safe=',')}" for name, value in parameters)


def _is_harmless(keys: Mapping[str, str]) -> bool:
    return all(not value or _HARMLESS.fullmatch(keyword) for keyword, value in keys.items())


def _warnings(response: httpx.Response, query: Query) -> PageWarnings:
    """Return the meaning of the Warning headers.

    One that we do not know may be about answers that are left out.
    """
    found = PageWarnings()
    for text in response.headers.get_list("warning"):
        if _WARNING.match(text.strip()) is None or _FUZZY.search(text):
            continue
        ignored = frozenset(key for key, value in query.keys.items() if value and _names(text, key))
        has_more = _MORE.search(text) is not None
        found = PageWarnings(
            has_more=found.has_more or has_more,
            is_other=found.is_other or not (has_more or ignored),
            ignored=found.ignored | ignored,
        )
    return found


def _names(text: str, keyword: str) -> bool:
    return keyword in text or f"{tag_for_keyword(keyword):08X}" in text.upper()


def _decoded(response: httpx.Response) -> list[Answer]:
    content = bounded(response, _BODY_BYTES)
    if not content.strip():
        return []
    try:
        return answers(content)
    except DicomJsonError as error:
        media_type = response.headers.get("content-type", "nothing").partition(";")[0][:60]
        raise SourceError(
            f"its answer is no DICOM JSON but {media_type}: {error}; check `url` of this source",
            is_final=True,
        ) from error


def _uid(item: Answer, level: Level) -> str:
    uid = item.get(_UID_OF[level], "")
    if _UID.fullmatch(uid) is None or len(uid) > 64:
        raise SourceError(f"it gives an answer without a {_UID_OF[level]}; its log may say why")
    return uid
