"""The statement of a STOW-RS answer on one instance, from DICOM JSON or XML.

Store Instances Response Module, PS3.18 10.5.3; DICOM JSON Model, PS3.18 Annex F; Native DICOM
Model, PS3.19 Annex A.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

import orjson

_REFERENCED: Final = "00081199"
_FAILED: Final = ("00081198", "0008119A")  # 0008119A: failures of parts that could not be read
_INSTANCE: Final = "00081155"
_FAILURE: Final = "00081197"
_WARNING: Final = "00081196"
_MODEL: Final = "NativeDicomModel"

Item = Mapping[str, Sequence[Any]]
"""Tag to values; a value of a sequence is another item."""


class StowAnswerError(Exception):
    """The body is no data set. The message holds no value of it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of an answer on one instance.

    `is_stored`: it is in Referenced SOP Sequence. `warning`: its Warning Reason, or None.
    `is_failed`: it is in Failed SOP Sequence. `failure`: its Failure Reason, or None. `others`:
    how many other instances are named.
    """

    is_stored: bool = False
    warning: int | None = None
    is_failed: bool = False
    failure: int | None = None
    others: int = 0


def statement_on(sop_instance_uid: str, media_type: str, body: bytes) -> Statement:
    """Return the statement of an answer on an instance. Raises StowAnswerError.

    A failure that names no instance is about ours, for a request has one.
    """
    answer = _data_set(media_type, body)
    stored = [item for item in _items(answer, _REFERENCED) if _uid(item) == sop_instance_uid]
    failed = [
        item
        for tag in _FAILED
        for item in _items(answer, tag)
        if _uid(item) in {"", sop_instance_uid}
    ]
    named = [_uid(item) for tag in (_REFERENCED, *_FAILED) for item in _items(answer, tag)]
    return Statement(
        bool(stored),
        _reason(stored, _WARNING),
        bool(failed),
        _reason(failed, _FAILURE),
        sum(uid not in {"", sop_instance_uid} for uid in named),
    )


def _reason(items: Sequence[Item], tag: str) -> int | None:
    """Return the first code of a tag; some servers write numbers as text."""
    for item in items:
        for value in item.get(tag, ()):
            text = str(value).strip()
            if text.isascii() and text.isdecimal() and len(text) <= 5:
                return int(text)
    return None


def _uid(item: Item) -> str:
    values = item.get(_INSTANCE, ())
    return str(values[0]).strip(" \0") if values else ""


def _items(item: Item, tag: str) -> Iterator[Item]:
    return (value for value in item.get(tag, ()) if isinstance(value, Mapping))


def _data_set(media_type: str, body: bytes) -> Item:
    if media_type in {"application/dicom+xml", "application/xml", "text/xml"}:
        return _from_xml(body)
    # Some servers leave the type out. HTML, say of a page to sign in, is no JSON.
    return _from_json(body)


def _from_json(body: bytes) -> Item:
    """Return the data set; some servers give a list of one."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise StowAnswerError("no JSON") from None  # the error would hold the text
    if isinstance(document, list) and len(document) == 1:
        (document,) = document
    if not isinstance(document, dict):
        raise StowAnswerError("no data set in DICOM JSON")
    return _item_of_json(document)


def _item_of_json(document: Mapping[str, Any]) -> Item:
    """Return an item. Only one level of sequences is needed."""
    found: dict[str, Sequence[Any]] = {}
    for tag, element in document.items():
        values = element.get("Value") if isinstance(element, dict) else None
        if isinstance(values, list):
            found[tag.upper()] = [
                _item_of_json(value) if isinstance(value, dict) else value for value in values
            ]
    return found


class _NoDocumentType(ElementTree.TreeBuilder):
    """Refuses a document type, and with it every entity that could grow."""

    def doctype(self, _name: str, _pubid: str | None, _system: str | None) -> None:
        """Raise StowAnswerError, before anything in it is read."""
        raise StowAnswerError("XML with a document type")


def _from_xml(body: bytes) -> Item:
    parser = ElementTree.XMLParser(target=_NoDocumentType())  # noqa: S314 - see _NoDocumentType
    try:
        parser.feed(body)
        root = parser.close()
        if _name(root) != _MODEL:
            raise StowAnswerError(f"XML without {_MODEL}")
        return _item_of_xml(root)
    except (ElementTree.ParseError, ValueError, LookupError, RecursionError):
        raise StowAnswerError("no XML") from None


def _item_of_xml(parent: ElementTree.Element) -> Item:
    return {
        attribute.get("tag", "").upper(): [
            _item_of_xml(value) if _name(value) == "Item" else value.text or ""
            for value in attribute
            if _name(value) in {"Item", "Value"}
        ]
        for attribute in parent
        if _name(attribute) == "DicomAttribute"
    }


def _name(element: ElementTree.Element) -> str:
    """Return the name without its namespace."""
    return element.tag.rpartition("}")[2]
