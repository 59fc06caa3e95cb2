"""One page of answers of QIDO-RS, and the meaning of its status and warnings (PS3.18 10.6.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx
from pydicom.datadict import tag_for_keyword

from hilum.retrieve.dicomweb.dicom_json import DicomJsonError, answers
from hilum.retrieve.source import Answer, Query, SourceError
from hilum.web.body import bounded

_BODY_BYTES: Final = 64 << 20
_WARNING: Final = re.compile(r"299\b")
_MORE: Final = re.compile(r"additional results", re.IGNORECASE)
_FUZZY: Final = re.compile(r"fuzzy", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PageWarnings:
    """The meaning of the Warning headers of a page.

    `has_more`: more can be asked for. `ignored`: keys that it does not match. `is_other`: one that
    we do not know, which may be about answers that are left out.
    """

    has_more: bool = False
    is_other: bool = False
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of the server. `asked`: so many at most. `is_refused`: more than it gives."""

    items: Sequence[Answer]
    asked: int
    warnings: PageWarnings = PageWarnings()
    is_refused: bool = False

    @property
    def is_full(self) -> bool:
        """Whether it holds as many as were asked for."""
        return len(self.items) >= self.asked


def page_of(response: httpx.Response, query: Query, asked: int) -> Page | None:
    """Return the page in an answer; None: its status is an error."""
    if response.status_code == httpx.codes.NO_CONTENT:
        return Page((), asked)
    if response.status_code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
        return Page((), asked, is_refused=True)
    if response.status_code != httpx.codes.OK:
        return None
    return Page(_items(response), asked, _warnings(response, query))


def _warnings(response: httpx.Response, query: Query) -> PageWarnings:
    texts = [
        text
        for text in response.headers.get_list("warning")
        if _WARNING.match(text.strip()) and not _FUZZY.search(text)
    ]
    about_more = [text for text in texts if _MORE.search(text)]
    ignored = [_ignored(text, query) for text in texts]
    return PageWarnings(
        has_more=bool(about_more),
        is_other=any(
            not keys for text, keys in zip(texts, ignored, strict=True) if text not in about_more
        ),
        ignored=frozenset().union(*ignored),
    )


def _ignored(text: str, query: Query) -> frozenset[str]:
    """Return the keys with a value that a warning names, by keyword or by tag."""
    return frozenset(
        keyword
        for keyword, value in query.keys.items()
        if value and (keyword in text or f"{tag_for_keyword(keyword):08X}" in text.upper())
    )


def _items(response: httpx.Response) -> list[Answer]:
    content = bounded(response, _BODY_BYTES)
    if not content.strip():
        return []
    try:
        return answers(content)
    except DicomJsonError as error:
        media_type = response.headers.get("content-type", "nothing").partition(";")[0][:60]
        raise SourceError(
            f"its answer is no DICOM JSON but {media_type}: {error}; check `url` of this source"
        ) from error
