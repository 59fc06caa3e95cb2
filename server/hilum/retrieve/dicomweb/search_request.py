"""The address of a query of QIDO-RS: its path, and its keys as parameters (PS3.18 10.6.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from pydicom.datadict import dictionary_VR, tag_for_keyword

from hilum.retrieve.dicomweb.session import WebRequest
from hilum.retrieve.source import Answer, Level, Query, SourceError

UID_OF: Final = {
    Level.STUDY: "StudyInstanceUID",
    Level.SERIES: "SeriesInstanceUID",
    Level.IMAGE: "SOPInstanceUID",
}
"""Keyword of the UID of an answer at each level."""
PARENT: Final = {Level.SERIES: Level.STUDY, Level.IMAGE: Level.SERIES}
"""The level above each."""
_SEGMENTS: Final = {Level.SERIES: "series", Level.IMAGE: "instances"}
_DICOM_JSON: Final = "application/dicom+json"
_UID: Final = re.compile(r"[0-9]+(\.[0-9]+)*")
_UID_LENGTH: Final = 64
# Keys whose values name no patient: a text of the server may be shown beside them.
_HARMLESS: Final = re.compile(
    r".*UID|StudyDate|StudyTime|SeriesDate|SeriesTime|Modality|ModalitiesInStudy"
    r"|SOPClassesInStudy|BodyPartExamined|StationName|PatientSex"
)


def search_request(
    query: Query, ignores: Sequence[str], size: int, offset: int | None
) -> WebRequest:
    """Return the request for one page. Raises SourceError for keys that cannot be asked for.

    `ignores`: keywords that the server does not match; it is asked for their values instead.
    """
    parameters = [*_parameters(query, ignores), ("limit", str(size))]
    if offset is not None:
        parameters.append(("offset", str(offset)))
    text = "&".join(f"{name}={quote(value, safe=',')}" for name, value in parameters)
    return WebRequest(f"{_path(query)}?{text}", _DICOM_JSON, is_word_shown=_is_harmless(query.keys))


def parents_of(level: Level) -> tuple[str, ...]:
    """Return the keywords of the UIDs above a level; they stand in the path."""
    parent = PARENT.get(level)
    return () if parent is None else (*parents_of(parent), UID_OF[parent])


def checked_uid(value: str, keyword: str) -> str:
    """Return a UID that may stand in a path. Raises SourceError."""
    if not is_uid(value):
        raise SourceError(f"{keyword} is no UID, so it cannot be asked for")
    return value


def is_uid(value: str) -> bool:
    """Return whether a text is one UID. Servers give some that PS3.5 9.1 forbids, such as 1.02."""
    return len(value) <= _UID_LENGTH and _UID.fullmatch(value) is not None


def uid_of(item: Answer, level: Level) -> str:
    """Return the UID of an answer. Raises SourceError without one."""
    uid = item.get(UID_OF[level], "")
    if not is_uid(uid):
        raise SourceError(f"it gives an answer without a {UID_OF[level]}; its log may say why")
    return uid


def _path(query: Query) -> str:
    path = "/studies"
    level = query.level
    segments = [_SEGMENTS[item] for item in (Level.SERIES, Level.IMAGE)]
    for keyword, segment in zip(parents_of(level), segments, strict=False):
        path += f"/{checked_uid(query.keys.get(keyword, ''), keyword)}/{segment}"
    return path


def _parameters(query: Query, ignores: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys: those with a value match, the others are asked for."""
    in_path = parents_of(query.level)
    for keyword, value in query.keys.items():
        if tag_for_keyword(keyword) is None:
            raise SourceError(f"{keyword} is no DICOM keyword; correct it", is_final=True)
        if keyword in in_path:
            continue
        if value and keyword not in ignores:
            yield keyword, _matching(keyword, value)
        else:
            yield "includefield", keyword


def _matching(keyword: str, value: str) -> str:
    """Return a value as QIDO-RS has it: UIDs of a list are separated by commas (8.3.4.1)."""
    return value.replace("\\", ",") if dictionary_VR(keyword) == "UI" else value


def _is_harmless(keys: Mapping[str, str]) -> bool:
    return all(not value or _HARMLESS.fullmatch(keyword) for keyword, value in keys.items())
