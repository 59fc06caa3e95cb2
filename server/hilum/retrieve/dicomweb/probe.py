"""A test of a DICOMweb server: a few small queries and one data set without its pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import httpx

from hilum.retrieve.dicomweb.retrieval import AS_STORED
from hilum.retrieve.dicomweb.search import PAGE, Search
from hilum.retrieve.dicomweb.search_page import Page
from hilum.retrieve.dicomweb.session import WebRequest, WebSession
from hilum.retrieve.source import Level, ProbeLine, Query, SourceError
from hilum.settings import DicomwebSource
from hilum.web.limits import TimeLimit

# No equipment has it, so a server that honours the key finds nothing.
_NO_MODALITY: Final = "ZZ"
_STUDY: Final = "StudyInstanceUID"
_SERIES: Final = "SeriesInstanceUID"
_IMAGE: Final = "SOPInstanceUID"
_QIDO: Final = "QIDO-RS"
_WADO: Final = "WADO-RS"


class DicomwebProbe:
    """The questions to one server, each with a small answer."""

    def __init__(self, session: WebSession, search: Search, settings: DicomwebSource) -> None:
        self._session = session
        self._search = search
        self._settings = settings

    def lines(self) -> Sequence[ProbeLine]:
        """Return the findings in the order of the questions. Never raises."""
        found: list[ProbeLine] = []
        if self._settings.url.startswith("http://"):
            found.append(ProbeLine("encryption", "none: http:// is not encrypted"))
        try:
            first = self._page(Level.STUDY, {}, 2)
        except SourceError as error:
            return [*found, ProbeLine(_QIDO, error.detail, is_ok=False)]
        found.append(ProbeLine(_QIDO, "answers queries", is_ok=True))
        found.append(_limit_line(first))
        for topic, question in self._questions(first):
            found.append(_answered(topic, question))
        return found

    def _questions(self, first: Page) -> Iterator[tuple[str, Callable[[], ProbeLine]]]:
        yield "results", self._results
        yield "offset", lambda: self._offset(first)
        yield "ModalitiesInStudy", self._modalities
        if first.items:
            study = first.items[0].get(_STUDY, "")
            yield _WADO, lambda: self._wado(study)

    def _results(self) -> ProbeLine:
        page = self._page(Level.STUDY, {}, PAGE)
        count = len(page.items)
        if page.is_refused:
            return ProbeLine("results", f"it refuses a query with limit={PAGE}", is_ok=False)
        if count >= PAGE:
            return ProbeLine("results", f"{PAGE} studies for limit={PAGE}", is_ok=True)
        return ProbeLine(
            "results",
            f"{count} studies for a query without keys; if it holds more, it cuts answers off"
            " (Orthanc: LimitFindResults), and plans become longer",
        )

    def _offset(self, first: Page) -> ProbeLine:
        if len(first.items) < 2:
            return ProbeLine("offset", "not tested: it gives fewer than two studies")
        second = self._page(Level.STUDY, {}, 1, offset=1)
        if second.items and second.items[0].get(_STUDY) == first.items[1].get(_STUDY):
            return ProbeLine("offset", "honoured", is_ok=True)
        return ProbeLine(
            "offset",
            f"ignored, or the order is not stable: more than {PAGE} answers count as cut off, and"
            " a plan splits them by date",
            is_ok=False,
        )

    def _modalities(self) -> ProbeLine:
        page = self._page(Level.STUDY, {"ModalitiesInStudy": _NO_MODALITY}, 1)
        if not page.items:
            return ProbeLine("ModalitiesInStudy", "honoured", is_ok=True)
        return ProbeLine(
            "ModalitiesInStudy",
            'ignored as a key: set ignores = ["ModalitiesInStudy"] for this source',
            is_ok=False,
        )

    def _wado(self, study: str) -> ProbeLine:
        """Fetch the metadata of one image, and ask whether its file would be sent as stored."""
        series = self._first(Level.SERIES, {_STUDY: study}, _SERIES)
        image = self._first(Level.IMAGE, {_STUDY: study, _SERIES: series}, _IMAGE)
        path = f"/studies/{study}/series/{series}/instances/{image}"
        self._require_metadata(path)
        return ProbeLine(_WADO, f"gives metadata; {self._as_stored(path)}", is_ok=True)

    def _require_metadata(self, path: str) -> None:
        request = WebRequest(f"{path}/metadata", "application/dicom+json", is_word_shown=False)
        with self._session.answer(request, self._limit()) as response:
            if response.status_code != httpx.codes.OK:
                raise self._session.problem(request, response)

    def _as_stored(self, path: str) -> str:
        with self._session.answer(WebRequest(path, AS_STORED, "HEAD"), self._limit()) as response:
            status = response.status_code
        if status == httpx.codes.OK:
            return "transfer-syntax=* is accepted"
        if status in {httpx.codes.BAD_REQUEST, httpx.codes.NOT_ACCEPTABLE}:
            return "transfer-syntax=* is refused, so it may decompress images"
        return f"transfer-syntax=* is not tested (HTTP {status} to HEAD)"

    def _first(self, level: Level, keys: Mapping[str, str], keyword: str) -> str:
        page = self._page(level, keys, 1)
        if not page.items:
            raise SourceError(f"no answer at the {level} level for a study that it has")
        return page.items[0].get(keyword, "")

    def _page(
        self, level: Level, keys: Mapping[str, str], size: int, offset: int | None = None
    ) -> Page:
        return self._search.page(Query(level, keys, size), size, offset, self._limit())

    def _limit(self) -> TimeLimit:
        return TimeLimit(self._settings.request_seconds)


def _limit_line(first: Page) -> ProbeLine:
    if len(first.items) <= first.asked:
        return ProbeLine("limit", "honoured", is_ok=True)
    return ProbeLine("limit", f"ignored: {len(first.items)} studies for limit={first.asked}")


def _answered(topic: str, question: Callable[[], ProbeLine]) -> ProbeLine:
    try:
        return question()
    except SourceError as error:
        return ProbeLine(topic, error.detail, is_ok=False)
