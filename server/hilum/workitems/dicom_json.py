"""Data sets as DICOM JSON (PS3.18 F), read without trust and written in short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

DataSet = Mapping[str, Any]
"""Elements by tag, eight hexadecimal digits, as they came: any of them may be malformed."""

_VR: Final[Mapping[str, str]] = {
    "00080054": "AE",
    "00080100": "SH",
    "00080102": "SH",
    "00080104": "LO",
    "00081150": "UI",
    "00081155": "UI",
    "00081190": "UR",
    "00081195": "UI",
    "0020000D": "UI",
    "0020000E": "UI",
    "00404050": "DT",
    "00404051": "DT",
    "00404052": "DT",
    "0040E020": "CS",
    "00741000": "CS",
    "00741238": "LT",
}


class NoDataSet(Exception):
    """A body is no DICOM JSON."""


def data_sets(content: bytes) -> list[DataSet]:
    """Return the data sets of a body: an array of them, or one. Raises NoDataSet."""
    if not content.strip():
        return []
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise NoDataSet("its answer is no JSON") from error
    if isinstance(found, dict):
        return [found]
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise NoDataSet("its answer is no DICOM JSON")
    return found


def values_of(data_set: DataSet, tag: str) -> list[Any]:
    """Return the values of an element; none where it is absent, empty or malformed."""
    element = data_set.get(tag)
    values = element.get("Value") if isinstance(element, dict) else None
    return values if isinstance(values, list) else []


def text_of(data_set: DataSet, tag: str) -> str:
    """Return the first value as text without the spaces around it; empty: there is none."""
    values = values_of(data_set, tag)
    return values[0].strip(" \0") if values and isinstance(values[0], str) else ""


def items_of(data_set: DataSet, tag: str) -> list[DataSet]:
    """Return the items of a sequence."""
    return [item for item in values_of(data_set, tag) if isinstance(item, dict)]


def element(tag: str, value: str) -> dict[str, Any]:
    """Return an element with one value."""
    return {tag: {"vr": _VR[tag], "Value": [value]}}


def sequence(tag: str, items: Iterable[DataSet]) -> dict[str, Any]:
    """Return a sequence."""
    return {tag: {"vr": "SQ", "Value": list(items)}}
