"""WADO-RS: images as they are stored there, piece by piece into our store (PS3.18 10.4)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import httpx
import structlog

from hilum.retrieve.dicomweb.multipart import (
    PART_BYTES,
    MultipartError,
    MultipartReader,
    content_type,
)
from hilum.retrieve.dicomweb.problems import SilentSource
from hilum.retrieve.dicomweb.search_request import checked_uid
from hilum.retrieve.dicomweb.session import WebRequest, WebSession
from hilum.retrieve.source import (
    FetchReport,
    FetchRequest,
    IncomingPart,
    ObjectStore,
    SourceError,
)
from hilum.web.body import pieces
from hilum.web.limits import TIMED_OUT, TimeLimit

_LOG: Final = structlog.get_logger()
AS_STORED: Final = 'multipart/related; type="application/dicom"; transfer-syntax=*'
_AS_IT_LIKES: Final = 'multipart/related; type="application/dicom"'
_DICOM: Final = "application/dicom"
_UNWANTED_PARTS: Final = 100
_WITH_IMAGES: Final = {200, 206}
_PARTIAL: Final = "206"
# Orthanc answers 400 where the standard has 406.
_NOT_ACCEPTABLE: Final = {"400", "406"}
_ENCODINGS: Final = {"binary", "8bit", "7bit"}


class StoredParts:
    """Gives the parts of one answer to the store. `problems`: each in words, at most some.

    A part is ended only when it is whole; `abandon` discards the one that is not.
    """

    def __init__(self, store: ObjectStore, maximum_parts: int) -> None:
        self.count = 0
        self.problems: list[str] = []
        self._store = store
        self._maximum_parts = maximum_parts
        self._part: IncomingPart | None = None
        self._promised: int | None = None
        self._size = 0
        self._begun = 0

    def begin(self, headers: Mapping[str, str]) -> None:
        """See `MultipartSink`. A part that is no DICOM file is left out."""
        self._begun += 1
        if self._begun > self._maximum_parts:
            raise SourceError(
                f"it sends more than {self._maximum_parts} parts for this series; its log may say"
                " why"
            )
        self._size = 0
        self._promised = _promised(headers)
        if not _is_file(headers):
            self.note("a part is no DICOM file in binary, and is left out")
            return
        self._part = self._store.begin()

    def write(self, piece: bytes) -> None:
        """See `MultipartSink`."""
        self._size += len(piece)
        if self._part is not None:
            self._part.write(piece)

    def end(self) -> None:
        """See `MultipartSink`. One that is shorter than its own header says is cut."""
        part = self._part
        self._part = None
        if part is None:
            return
        if self._promised is not None and self._size < self._promised:
            part.abandon()
            self.note("a part is shorter than its Content-Length, and is left out")
            return
        outcome = part.end()
        self.count += 1
        if outcome.problem:
            self.note(outcome.problem)

    def abandon(self) -> None:
        """Discard a part that is not whole."""
        if self._part is not None:
            self._part.abandon()
            self._part = None

    def note(self, problem: str) -> None:
        """Add a problem, unless it is known."""
        if problem not in self.problems and len(self.problems) < 3:
            self.problems.append(problem)


def _promised(headers: Mapping[str, str]) -> int | None:
    """Return the length that a part has by its own headers; None: it does not say."""
    length = headers.get("content-length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,15}", length) else None


def _is_file(headers: Mapping[str, str]) -> bool:
    """Return whether a part is a DICOM file; without headers it is of the type asked for."""
    media_type, _ = content_type(headers.get("content-type", _DICOM))
    encoding = headers.get("content-transfer-encoding", "binary").lower()
    return media_type == _DICOM and encoding in _ENCODINGS


@dataclass(frozen=True, slots=True)
class _Ended:
    """How one request ended."""

    status: str
    problems: tuple[str, ...] = ()
    error: SourceError | None = None

    @property
    def text(self) -> str:
        """Its error and its problems; empty: none."""
        error = () if self.error is None else (self.error.detail,)
        return "; ".join((*error, *self.problems))


class WadoRetrieval:
    """Requests for images of one server."""

    def __init__(self, session: WebSession, address: str) -> None:
        self._session = session
        self._address = address
        self._accept = AS_STORED

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """Ask for the images; see `ImageSource.fetch`."""
        limit = TimeLimit(wanted.limit_seconds, stop)
        return _report(list(self._ends(wanted, store, limit)))

    def _ends(self, wanted: FetchRequest, store: ObjectStore, limit: TimeLimit) -> Iterator[_Ended]:
        """Ask for the series as one, or for each image; an error that others would meet ends it."""
        for path in paths_of(wanted):
            ended = self._request(
                path, StoredParts(store, 2 * len(wanted.images) + _UNWANTED_PARTS), limit
            )
            yield ended
            if limit.is_over or _would_repeat(ended):
                return

    def _request(self, path: str, parts: StoredParts, limit: TimeLimit) -> _Ended:
        """Ask for the bytes as stored; where it cannot, once more for those that it chooses."""
        ended = self._once(path, self._accept, parts, limit)
        if self._accept != AS_STORED or ended.status not in _NOT_ACCEPTABLE:
            return ended
        second = self._once(path, _AS_IT_LIKES, parts, limit)
        if second.error is None:
            self._accept = _AS_IT_LIKES
            _LOG.warning(
                "source_chooses_transfer_syntax",
                source=self._address,
                status=ended.status,
                advice=(
                    "It refuses transfer-syntax=*, so it may decompress images, which takes its"
                    " CPU and three times the bytes. A newer version of it may not."
                ),
            )
            return second
        return replace(second, problems=(*second.problems, "also without transfer-syntax=*"))

    def _once(self, path: str, accept: str, parts: StoredParts, limit: TimeLimit) -> _Ended:
        request = WebRequest(path, accept, is_word_shown=False)
        status = "no answer"
        try:
            with self._session.answer(request, limit) as response:
                status = str(response.status_code)
                if response.status_code not in _WITH_IMAGES:
                    raise self._session.problem(request, response)
                _take(response, parts, limit)
        except SourceError as error:
            if isinstance(error, SilentSource):
                status = TIMED_OUT
            return _Ended(limit.word or status, tuple(parts.problems), error)
        finally:
            parts.abandon()
        if status == _PARTIAL:
            parts.note("HTTP 206: it gives a part of what was asked for")
        if not parts.count and not parts.problems:
            parts.note("its answer holds no image")
        return _Ended(status, tuple(parts.problems))


def paths_of(wanted: FetchRequest) -> Sequence[str]:
    """Return the path of the series, or those of its images. Raises SourceError for no UID."""
    study = checked_uid(wanted.study_instance_uid, "StudyInstanceUID")
    series = checked_uid(wanted.series_instance_uid, "SeriesInstanceUID")
    path = f"/studies/{study}/series/{series}"
    if wanted.are_all:
        return [path]
    images = [checked_uid(image.sop_instance_uid, "SOPInstanceUID") for image in wanted.images]
    return [f"{path}/instances/{image}" for image in images]


def _take(response: httpx.Response, parts: StoredParts, limit: TimeLimit) -> None:
    """Read a body into the store. Raises SourceError for one that is cut; whole parts are kept."""
    media_type, boundary = content_type(response.headers.get("content-type", ""))
    if media_type == _DICOM:
        _take_one(response, parts, limit)
        return
    if media_type != "multipart/related":
        raise SourceError(
            f"it answers {media_type[:60] or 'without a Content-Type'} instead of DICOM files;"
            " check `url` of this source"
        )
    try:
        reader = MultipartReader(boundary, parts)
        for piece in pieces(response):
            limit.check()
            reader.feed(piece)
    except MultipartError as error:
        raise SourceError(f"its multipart body is not well formed: {error}") from error
    if not reader.is_closed:
        raise SourceError("its body ends without the closing boundary, so images may be missing")


def _take_one(response: httpx.Response, parts: StoredParts, limit: TimeLimit) -> None:
    """Read a body that is one file. Its end is known by its length or its last chunk alone."""
    has_length = "content-length" in response.headers
    if not has_length and "chunked" not in response.headers.get("transfer-encoding", ""):
        raise SourceError("its body has no length, so nothing shows whether it is whole")
    size = 0
    parts.begin({})
    for piece in pieces(response):
        limit.check()
        size += len(piece)
        if size > PART_BYTES:
            raise SourceError(f"its answer is longer than {PART_BYTES} bytes")
        parts.write(piece)
    parts.end()


def _would_repeat(ended: _Ended) -> bool:
    """Return whether the next image would fail alike."""
    error = ended.error
    return error is not None and (error.is_outage or error.is_final)


def _report(ends: Sequence[_Ended]) -> FetchReport:
    """Return one report on all requests, the first of those that failed in its words."""
    failed = [ended for ended in ends if ended.text]
    if not failed:
        return FetchReport(ends[-1].status if ends else "nothing asked for")
    errors = [ended.error for ended in failed if ended.error is not None]
    count = f"{len(failed)} of {len(ends)} requests: " if len(ends) > 1 else ""
    return FetchReport(
        failed[-1].status,
        count + failed[0].text,
        is_outage=any(error.is_outage for error in errors),
        is_final=bool(errors) and all(error.is_final for error in errors),
    )
