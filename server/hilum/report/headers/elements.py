"""The elements of a header as they may be written again.

Read, decoded to Unicode, each value valid or gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pydicom.datadict import dictionary_VR, keyword_for_tag
from pydicom.dataelem import DataElement, RawDataElement
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.tag import BaseTag

from hilum.report.headers.clean_text import cleaned
from hilum_preprocessing.header.elements import MALFORMED
from hilum_preprocessing.header.structure import require_bounded_value

# Type 1 in the items: Table 10-11 (references), Table 8.8-1 (codes), Table C.2-2 (other identifiers
# of the patient).
_NEEDED: Final = (
    (
        re.compile(r"Referenced(Study|Patient)Sequence"),
        ("ReferencedSOPClassUID", "ReferencedSOPInstanceUID"),
    ),
    (re.compile(r"\w+CodeSequence"), ("CodeValue", "CodingSchemeDesignator", "CodeMeaning")),
    (re.compile(r"OtherPatientIDsSequence"), ("PatientID", "TypeOfPatientID")),
)
# Not the tilde, in whose place JIS X 0201 has another character (PS3.5 6.1.2.3).
_ASCII: Final = re.compile(rb"[ -}]*")
_MULTIPLE: Final = frozenset({"AS", "CS", "DA", "DS", "DT", "LO", "PN", "SH", "TM", "UI"})
_TEXTS: Final = _MULTIPLE | {"LT", "ST", "UT"}
_PLAIN_TEXTS: Final = _TEXTS - {"DS", "PN", "UI"}  # kept as `str` by pydicom


def cleaned_elements(dataset: Dataset, chosen: Iterable[BaseTag]) -> Dataset:
    """Return new, Unicode elements of those that can be read and written again."""
    elements = {tag: _cleaned(dataset, tag) for tag in chosen}
    return Dataset({tag: element for tag, element in elements.items() if element is not None})


def _cleaned(dataset: Dataset, tag: BaseTag) -> DataElement | None:
    try:
        _require_bounded(dataset.get_item(tag))
        vr, value = plain(dataset.get_item(tag)) or decoded(dataset[tag])
        value = (
            _items(value, keyword_for_tag(tag))
            if vr == "SQ"
            else cleaned(tag, vr, value, dataset.original_character_set)
        )
        return (
            None
            if value is None
            else DataElement(tag, vr, value, already_converted=_is_as_pydicom_has_it(vr, value))
        )
    except MALFORMED:
        return None  # one unreadable element must not cost the report


def _require_bounded(element: DataElement | RawDataElement | None) -> None:
    """Before pydicom converts it. Raises TooComplex, which is a ValueError."""
    if isinstance(element, RawDataElement):
        order = "<" if element.is_little_endian else ">"
        require_bounded_value(
            element.value or b"",
            element.tag,
            element.VR,
            is_implicit=element.is_implicit_VR,
            order=order,
        )


def _is_as_pydicom_has_it(vr: str, value: object) -> bool:
    """Return whether pydicom's search, conversion and checks would leave the value as it is."""
    return (type(value) is str and vr in _PLAIN_TEXTS and "\\" not in value) or vr == "US"


def _safe(dataset: Dataset) -> list[BaseTag]:
    """Return the tags that are neither private nor group lengths."""
    # Iterating a Dataset yields elements, and reading one of them may raise.
    return [tag for tag in dataset.keys() if not tag.is_private and tag.element != 0]  # noqa: SIM118


def plain(element: DataElement | RawDataElement | None) -> tuple[str, Any] | None:
    """Values of printable ASCII, which all character sets write alike, and one number.

    Most are, and pydicom takes 15 µs for each.
    """
    if not isinstance(element, RawDataElement) or not isinstance(element.value, bytes):
        return None
    vr = dictionary_VR(element.tag)
    if element.VR not in (None, vr):
        return None
    if vr == "US" and len(element.value) == 2:
        return vr, int.from_bytes(element.value, "little" if element.is_little_endian else "big")
    value = element.value.rstrip(b"\0 ")
    if vr not in _TEXTS or not _ASCII.fullmatch(value):
        return None
    text = value.decode("ascii")
    return vr, text.split("\\") if "\\" in text and vr in _MULTIPLE else text


def decoded(element: DataElement) -> tuple[str, Any]:
    """By the Value Representation of PS3.6.

    A header may claim any other, and a date that calls itself a name is still no date.
    """
    allowed = dictionary_VR(element.tag).split(" or ")
    vr = element.VR if element.VR in allowed else allowed[0]
    value = element.value
    return vr, (
        value.split("\\") if vr in _MULTIPLE and isinstance(value, str) and "\\" in value else value
    )  # it claims one long text


def _items(value: Iterable[Dataset], keyword: str) -> Sequence | None:
    """Return the items that hold the required elements of their macro.

    A report inherits optional sequences only, so an empty one is left out.
    """
    needed = next((keywords for pattern, keywords in _NEEDED if pattern.fullmatch(keyword)), ())
    items = [cleaned_elements(item, _safe(item)) for item in value]
    whole = [item for item in items if len(item) and all(item.get(name) for name in needed)]
    return Sequence(whole) if whole else None
