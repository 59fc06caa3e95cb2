"""The extract of an image's header that documents use.

It holds the descriptors and the inherited elements, encoded already.

Most elements of a header are one value of printable ASCII that is valid as it stands, and pydicom
takes 15 µs for each. Here those are copied as they are, found by their lengths alone. The others
are read, cleaned and encoded as for the reference builder.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydicom.datadict import dictionary_VR, keyword_for_tag
from pydicom.dataset import Dataset
from pydicom.tag import BaseTag

from hilum.dicom.charset import are_known
from hilum.dicom.elements import places
from hilum.dicom.encoding import counted, head, padded
from hilum.domain import Instance
from hilum.report.headers.clean_text import DATE_TIME, ENUMERATED, LONGEST, TIME
from hilum.report.headers.header import (
    CHARACTER_SET,
    SEX,
    SEXES,
    STUDY,
    TYPE_2,
    is_usual,
    read_descriptors,
    read_elements,
    read_header,
)
from hilum.report.headers.inherited import (
    DESCRIPTORS,
    EQUIPMENT,
    IDENTIFIERS,
    INHERITED,
    OF_OTHERS,
    tags,
)
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.template.writing import encoded
from hilum_preprocessing.header.charset import SAME
from hilum_preprocessing.header.element_index import Element

_OF_PATIENT: Final = tags(
    {
        "AccessionNumber",
        "IssuerOfPatientID",
        "PatientBirthDate",
        "PatientID",
        "PatientName",
        "PatientSex",
        "StudyDate",
        "StudyTime",
        "TimezoneOffsetFromUTC",
    }
)
_SAID: Final = _OF_PATIENT | tags(DESCRIPTORS | EQUIPMENT)
_ENCODED: Final = tags(INHERITED | EQUIPMENT)
_NUMBER_BYTES: Final = 2

# Values that every character set writes alike and that `cleaning` leaves as they are, without
# padding.
_TEXT: Final = b"[" + SAME + b"]"
_DAY: Final = (
    rb"(?!0000)\d{4}(?:(?:0[1-9]|1[0-2])(?:0[1-9]|1\d|2[0-8])"
    rb"|(?:0[13-9]|1[0-2])(?:29|30)|(?:0[13578]|1[02])31)"
)
_CODE: Final = rb"[A-Z0-9_](?:[A-Z0-9_ ]{0,14}[A-Z0-9_])?"
_NUMBER: Final = rb"[+-]?\d{1,7}(?:\.\d{0,7})?"
_NOTHING: Final = rb"(?!)"
_SETTLED: Final[Mapping[str, bytes]] = {
    **{vr: _TEXT + b"{0,%d}" % LONGEST[vr] for vr in ("SH", "LO", "ST", "LT")},
    "PN": rb"[ -<>-\[\]-}]{0,1024}",  # one group
    "AS": rb"(?:\d{3}[DWMY])?",
    "CS": b"(?:" + _CODE + b")?",
    "DA": b"(?:" + _DAY + b")?",
    "DS": b"(?:" + _NUMBER + b")?",
    "DT": b"(?:" + DATE_TIME.pattern.encode() + b")?",
    "TM": b"(?:" + TIME.pattern.encode() + b")?",
}
# Of these others than their Value Representation allows.
_SETTLED_OF: Final[Mapping[str, bytes]] = {
    **{
        keyword: "|".join(values).encode()
        for keyword, values in ENUMERATED.items()
        if isinstance(values[0], str)
    },
    **dict.fromkeys(IDENTIFIERS, _TEXT + b"{0,1024}"),
    "PatientSex": "|".join(SEXES).encode(),
    "PatientOrientation": _CODE + rb"\\" + _CODE,
    "ImagerPixelSpacing": _NUMBER + rb"\\" + _NUMBER,
}


@dataclass(frozen=True, slots=True)
class Extract:
    """`said`: values by keyword.

    `elements`: by tag, as they stand in a report: Explicit VR Little Endian, text in UTF-8.
    """

    sop_class_uid: str
    sop_instance_uid: str
    study_instance_uid: str
    series_instance_uid: str
    said: Mapping[str, Any]
    elements: Mapping[int, bytes]

    def get(self, keyword: str, default: Any = None, /) -> Any:  # noqa: ANN401 - whatever an attribute is
        """Return a descriptor of the image, as `Dataset.get`."""
        return self.said.get(keyword, default)


class _Rule(NamedTuple):
    """Of one attribute.

    `settled`: the values that go over as they are; `head`: tag and Value Representation, encoded.
    """

    keyword: str
    vr: bytes
    settled: re.Pattern[bytes]
    head: bytes
    is_said: bool
    is_encoded: bool


_Rules = Mapping[int, _Rule]
_Taken = tuple[dict[str, Any], dict[int, bytes]]


def extract(instance: Instance) -> Extract:
    """Extract from the image that gives documents patient and study.

    Raises the exceptions of `read_header`.
    """
    taken = _short_way(instance, _OF_FIRST)
    return (
        extract_of(read_header(instance))
        if taken is None
        else _of_ledger(instance, _completed(*taken))
    )


def further_extract(instance: Instance) -> Extract:
    """Extract the descriptors alone, of a further image.

    Raises the exceptions of `read_descriptors`.
    """
    return _of_ledger(
        instance, _short_way(instance, _OF_OTHERS) or _taken(read_descriptors(instance), _OF_OTHERS)
    )


def extract_of(clean: Dataset) -> Extract:
    """Extract from the data set that `read_header` has returned."""
    return Extract(
        clean.SOPClassUID,
        clean.SOPInstanceUID,
        clean.StudyInstanceUID,
        clean.SeriesInstanceUID,
        *_taken(clean, _OF_FIRST),
    )


def _of_ledger(instance: Instance, taken: _Taken) -> Extract:
    uids = (
        instance.sop_class_uid,
        instance.sop_instance_uid,
        instance.study_instance_uid,
        instance.series_instance_uid,
    )
    return Extract(*uids, *taken)


def _completed(said: dict[str, Any], elements: dict[int, bytes]) -> _Taken:
    """As `read_header` completes it."""
    return {**_UNSAID, **said}, {**_EMPTY, **elements}


def _taken(clean: Dataset, rules: _Rules) -> _Taken:
    """Return descriptors, and encoded elements, of elements that were read and cleaned."""
    found = [(rules[tag], clean[tag]) for tag in clean.keys() & rules.keys()]
    with quietly():
        elements = {int(item.tag): encoded([item]) for rule, item in found if rule.is_encoded}
    return {rule.keyword: item.value for rule, item in found if rule.is_said}, elements


def _short_way(instance: Instance, rules: _Rules) -> _Taken | None:
    """Extract without pydicom; None: it does not lead through this header.

    Raises NotAnalysed for an identifier that is damaged.
    """
    header = instance.header
    found = places(header, rules) if is_usual(instance) else None
    if found is None or not _is_known(header, character_set := found.pop(CHARACTER_SET, None)):
        return None
    said, elements, others = _settled(header, found, rules)
    if others:
        encoded_in = [] if character_set is None else [character_set]
        part = b"".join(
            [header[place.start : place.end] for place in (*encoded_in, *others.values())]
        )
        more_said, more_elements = _read(part, others.keys(), rules)
        said = said | more_said
        elements = elements | more_elements
    return said, elements


def _is_known(header: bytes, character_set: Element | None) -> bool:
    """Whether pydicom reads it for sure.

    Of one that it does not know it may say that the header cannot be read.
    """
    if character_set is None:
        return True
    names = header[character_set.value : character_set.end]
    return character_set.vr == b"CS" and are_known(names)


def _settled(
    header: bytes, found: Mapping[int, Element], rules: _Rules
) -> tuple[dict[str, Any], dict[int, bytes], dict[int, Element]]:
    """Return descriptors, encoded elements, and the elements that are not settled."""
    said: dict[str, Any] = {}
    elements: dict[int, bytes] = {}
    others: dict[int, Element] = {}
    for tag, place in found.items():
        keyword, expected, settled, head, is_said, is_encoded = rules[tag]
        _, vr, _, begin, end = place
        value = header[begin:end]
        text = value.rstrip(b"\0 ")
        if vr != expected:
            others[tag] = place
        elif settled.fullmatch(text):
            if is_said:
                said[keyword] = text.decode().split("\\") if b"\\" in text else text.decode()
            if is_encoded:
                elements[tag] = head + counted(padded(text))
        elif vr == b"US" and len(value) == _NUMBER_BYTES and not is_encoded:
            said[keyword] = int.from_bytes(value, "little")
        else:
            others[tag] = place
    return said, elements, others


def _read(encoded: bytes, wanted: Container[int], rules: _Rules) -> _Taken:
    with quietly():
        clean = read_elements(encoded, wanted)
    if SEX in clean and clean[SEX].value not in SEXES:
        del clean[SEX]
    return _taken(clean, rules)


def _rules(wanted: Iterable[int]) -> _Rules:
    return {tag: _rule(BaseTag(tag)) for tag in (*wanted, CHARACTER_SET) if tag != STUDY}


def _rule(tag: BaseTag) -> _Rule:
    keyword = keyword_for_tag(tag)
    vr = dictionary_VR(tag)
    settled = re.compile(_SETTLED_OF.get(keyword) or _SETTLED.get(vr) or _NOTHING)
    return _Rule(
        keyword, vr.encode(), settled, head(tag, vr.encode()), tag in _SAID, tag in _ENCODED
    )


_OF_FIRST: Final = _rules(_SAID | _ENCODED | tags(IDENTIFIERS))
_OF_OTHERS: Final = _rules(OF_OTHERS)
_UNSAID: Final = {_OF_FIRST[tag].keyword: "" for tag in TYPE_2 if tag in _SAID}
_EMPTY: Final = {int(tag): head(tag, vr.encode()) + counted(b"") for tag, vr in TYPE_2.items()}
