"""DICOM JSON of an answer to a query, as keywords and texts (PS3.18 Annex F)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final

import orjson
from pydicom.datadict import keyword_for_tag

from hilum.retrieve.source import Answer

_TAG: Final = re.compile(r"[0-9A-Fa-f]{8}")
_NAME_GROUPS: Final = ("Alphabetic", "Ideographic", "Phonetic")
# Sequences and bulk data are no text, and no key of ours.
_WITHOUT_TEXT: Final = {"SQ", "OB", "OD", "OF", "OL", "OV", "OW", "UN"}


class DicomJsonError(Exception):
    """The text is no DICOM JSON. The message holds no value of it."""


def answers(content: bytes) -> list[Answer]:
    """Return each data set of a body. Raises DicomJsonError."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DicomJsonError("it is no JSON") from error
    if not isinstance(document, list):
        raise DicomJsonError("it is no list of data sets")
    return [dict(_elements(item)) for item in document]


def _elements(data_set: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON of a peer
    if not isinstance(data_set, dict):
        raise DicomJsonError("it lists something that is no data set")
    for tag, element in data_set.items():
        if _TAG.fullmatch(tag) is None or not isinstance(element, dict):
            raise DicomJsonError("it has a member that is no element")
        keyword = keyword_for_tag(int(tag, 16))
        if keyword and element.get("vr") not in _WITHOUT_TEXT:
            yield keyword, _text(keyword, element)


def _text(keyword: str, element: Mapping[str, Any]) -> str:
    values = element.get("Value", [])
    if not isinstance(values, list):
        raise DicomJsonError(f"the value of {keyword} is no list")
    return "\\".join(_one(keyword, value) for value in values)


def _one(keyword: str, value: Any) -> str:  # noqa: ANN401 - JSON of a peer
    if value is None:  # an empty one among several (F.2.5)
        return ""
    if isinstance(value, str):
        return value.strip(" \0")
    if isinstance(value, dict):
        return _name(keyword, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise DicomJsonError(f"a value of {keyword} is neither text nor number")
    return str(int(value)) if value == int(value) else repr(value)


def _name(keyword: str, groups: Mapping[str, Any]) -> str:
    """Return a person's name with its component groups (F.2.2)."""
    if not all(isinstance(group, str) for group in groups.values()):
        raise DicomJsonError(f"a value of {keyword} is no name")
    return "=".join(groups.get(name, "") for name in _NAME_GROUPS).rstrip("=")
