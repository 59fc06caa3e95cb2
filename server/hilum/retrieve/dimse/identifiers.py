"""Identifiers of queries and retrieves (PS3.4 C.4).

An identifier of a retrieve holds the level and unique keys only, each a full UID. A server moves
its whole archive for an empty Study Instance UID, so none is ever built.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pydicom import config
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset

from hilum.domain import ExpectedImage
from hilum.retrieve.source import FetchRequest, Level, Query, SourceError

_UID: Final = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_UID_CHARACTERS: Final = 64  # PS3.5 9.1
_LIST_UIDS: Final = 100
_PARENTS: Final[Mapping[Level, tuple[str, ...]]] = {
    Level.STUDY: (),
    Level.SERIES: ("StudyInstanceUID",),
    Level.IMAGE: ("StudyInstanceUID", "SeriesInstanceUID"),
}
# It shall not be a key of a request; servers may return it (PS3.4 C.4.1.1.3.2).
_NEVER_ASKED: Final = frozenset({"InstanceAvailability", "QueryRetrieveLevel"})
# Keys that each SCP of the Study Root model supports (PS3.4 C.6.2.1, C.6.1.1).
_SUPPORTED: Final = frozenset(
    {
        "StudyDate",
        "StudyTime",
        "AccessionNumber",
        "PatientName",
        "PatientID",
        "StudyID",
        "StudyInstanceUID",
        "Modality",
        "SeriesNumber",
        "SeriesInstanceUID",
        "InstanceNumber",
        "SOPInstanceUID",
        "SpecificCharacterSet",
    }
)


def is_full_uid(text: str) -> bool:
    """Return whether it is one UID: digits and dots, no wildcard, at most 64 characters."""
    return len(text) <= _UID_CHARACTERS and _UID.fullmatch(text) is not None


def query_identifier(query: Query, ignored: Collection[str]) -> Dataset:
    """Return the identifier of a query without the keys that the source is known to ignore.

    Raises SourceError where the keys of the levels above are not full UIDs (PS3.4 C.4.1.2.2.1).
    """
    _require_parents(query)
    unsent = frozenset(ignored) | _NEVER_ASKED
    identifier = Dataset()
    for keyword, value in query.keys.items():
        if keyword not in unsent:
            _put(identifier, keyword, value)
    if not all(map(str.isascii, query.keys.values())):
        _put(identifier, "SpecificCharacterSet", "ISO_IR 192")
    _put(identifier, "QueryRetrieveLevel", query.level.value)
    return identifier


def _require_parents(query: Query) -> None:
    for parent in _PARENTS[query.level]:
        if not is_full_uid(query.keys.get(parent, "")):
            raise SourceError(f"a query at {query.level} level needs one full {parent}")


def optional_keys(identifier: Dataset) -> tuple[str, ...]:
    """Return the keys of a query that a server need not support."""
    known = _SUPPORTED | _NEVER_ASKED
    return tuple(item.keyword for item in identifier if item.keyword not in known)


def retrieve_identifiers(wanted: FetchRequest, *, by_lists: bool) -> Sequence[Dataset]:
    """Return the identifiers that ask for these images: of the series, or of lists of images.

    Raises SourceError where a UID is not a full one.
    """
    study = wanted.study_instance_uid
    series = wanted.series_instance_uid
    _require_full(study, series, *(image.sop_instance_uid for image in wanted.images))
    if wanted.are_all:
        return [_retrieve(Level.SERIES, study, series)]
    step = _LIST_UIDS if by_lists else 1
    return [
        _retrieve(Level.IMAGE, study, series, wanted.images[first : first + step])
        for first in range(0, len(wanted.images), step)
    ]


def _retrieve(
    level: Level, study: str, series: str, images: Sequence[ExpectedImage] = ()
) -> Dataset:
    identifier = Dataset()
    _put(identifier, "StudyInstanceUID", study)
    _put(identifier, "SeriesInstanceUID", series)
    if images:
        uids = [image.sop_instance_uid for image in images]
        _put(identifier, "SOPInstanceUID", "\\".join(uids))
    _put(identifier, "QueryRetrieveLevel", level.value)
    return identifier


def _require_full(*uids: str) -> None:
    """Raise SourceError for anything else; its value is not repeated, as it may be any text."""
    if not all(map(is_full_uid, uids)):
        raise SourceError(
            "a Study, Series or SOP Instance UID of the series is not one full UID (digits and"
            " dots); nothing is retrieved by it"
        )


def _put(identifier: Dataset, keyword: str, value: str) -> None:
    """Put a key as it is: ranges, wildcards and lists are not values of their representation."""
    tag = tag_for_keyword(keyword)
    if tag is None:
        raise SourceError(f"{keyword!r} is not a keyword of PS3.6; correct the query")
    identifier[tag] = DataElement(tag, dictionary_VR(tag), value, validation_mode=config.IGNORE)
