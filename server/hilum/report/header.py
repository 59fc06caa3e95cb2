"""The header of a source image, made fit for a report: read by its own rules, decoded to Unicode, each value valid or gone.

Reports inherit patient and study from an image, and images come with every fault there is. What a report needs and an image lacks
is empty here (type 2), what cannot be read is dropped, and what identifies a patient or an order is copied whole, however long it
is: a shortened Accession Number is another order.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from io import BytesIO
from typing import Any, Final

from pydicom.datadict import dictionary_VM, dictionary_VR
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.errors import BytesLengthException
from pydicom.filereader import read_dataset
from pydicom.multival import MultiValue
from pydicom.sequence import Sequence
from pydicom.tag import BaseTag
from pydicom.uid import UID

from hilum.domain import Instance, Reason
from hilum.errors import NotAnalysed
from hilum.report.quiet import quietly

# Type 2 in the Patient and General Study modules (PS3.3 C.7.1.1, C.7.2.1): present in every report, if need be empty.
_TYPE_2: Final = (
    "PatientName",
    "PatientID",
    "PatientBirthDate",
    "PatientSex",
    "AccessionNumber",
    "StudyID",
    "StudyDate",
    "StudyTime",
    "ReferringPhysicianName",
)
# What pydicom raises where a broken byte leads it.
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    EOFError,
    OSError,
    RecursionError,
    NotImplementedError,
    struct.error,
    BytesLengthException,
)
_SEXES: Final = frozenset({"M", "F", "O"})
# PS3.5 6.1.3: Unicode has no use for the escape of ISO 2022; line ends and tabs belong into the text representations only.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_TIME: Final = re.compile(r"([01]\d|2[0-3])([0-5]\d([0-5]\d(\.\d{1,6})?)?)?")
_DATE_TIME: Final = re.compile(r"\d{4}(\d{2}){0,5}(\.\d{1,6})?([+-]\d{4})?")
_UID: Final = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*))+")
_OFFSET: Final = re.compile(r"[+-](0\d|1[0-4])[0-5]\d")


def read_header(instance: Instance) -> Dataset:
    """Clean, Unicode data set of one image without its pixels. Raises NotAnalysed(corrupt_header) when it cannot be read at all."""
    with quietly():
        clean = _clean(_parse(instance))
    clean.SOPClassUID = instance.sop_class_uid
    clean.SOPInstanceUID = instance.sop_instance_uid
    clean.StudyInstanceUID = instance.study_instance_uid
    clean.SeriesInstanceUID = instance.series_instance_uid
    _complete(clean)
    return clean


def _parse(instance: Instance) -> Dataset:
    syntax = UID(instance.transfer_syntax_uid)
    is_implicit = syntax.is_implicit_VR if syntax.is_transfer_syntax else False
    is_little = syntax.is_little_endian if syntax.is_transfer_syntax else True
    try:
        return read_dataset(BytesIO(instance.header), is_implicit, is_little)
    except _UNREADABLE as error:
        raise NotAnalysed(Reason.CORRUPT_HEADER, f"the stored header cannot be read: {type(error).__name__}") from None


def _complete(clean: Dataset) -> None:
    for keyword in _TYPE_2:
        if keyword not in clean:
            setattr(clean, keyword, "")
    if clean.PatientSex not in _SEXES:
        clean.PatientSex = ""  # PS3.3 C.7.1.1: M, F and O are the only defined values
    clean.SpecificCharacterSet = "ISO_IR 192"


def _clean(dataset: Dataset) -> Dataset:
    """The elements that can be read and written again, as new values that hold no bytes of the old character set."""
    clean = Dataset()
    for tag in dataset.keys():  # noqa: SIM118 - iterating a Dataset yields elements, and reading one of them may raise
        if not tag.is_private and tag.element != 0:
            _copy(dataset, tag, clean)
    return clean


def _copy(dataset: Dataset, tag: BaseTag, clean: Dataset) -> None:
    try:
        element = dataset[tag]
        vr = _vr(element)
        value = _cleaned(vr, element.value)
        value = _one(vr, value) if isinstance(value, list) and dictionary_VM(tag) == "1" else value
    except _UNREADABLE:
        return  # one unreadable element must not cost the report
    if value is not None:
        clean.add_new(tag, vr, value)


def _vr(element: DataElement) -> str:
    """The Value Representation of PS3.6: a header may claim any other, and a date that calls itself a name is still no date."""
    allowed = dictionary_VR(element.tag).split(" or ")
    return element.VR if element.VR in allowed else allowed[0]


def _cleaned(vr: str, value: Any) -> Any:  # noqa: ANN401 - whatever pydicom makes of a value
    """The value as it may be written, or None to leave the element out."""
    if vr == "SQ":
        return Sequence([_clean(item) for item in value])
    if vr in ("US", "SS", "UL", "SL"):
        return value if isinstance(value, int) else None
    if vr not in _CLEANERS or isinstance(value, bytes | Sequence):
        return None
    values = list(value) if isinstance(value, MultiValue | list | tuple) else [value]
    cleaned = [_CLEANERS[vr]("" if item is None else str(item)) for item in values]
    if any(item is None for item in cleaned):
        return None
    return cleaned[0] if len(cleaned) == 1 else cleaned


def _one(vr: str, values: list[str]) -> Any:  # noqa: ANN401 - as above
    """Several values where one belongs: identifiers and texts are kept as they are, of names the first, anything else is unreadable."""
    if vr in ("SH", "LO", "UC"):
        return values
    return values[0] if vr == "PN" else None


def _line(value: str) -> str:
    return _CONTROL.sub("", value)


def _paragraph(value: str) -> str:
    return _CONTROL_IN_TEXT.sub("", value)


def _code_string(value: str) -> str | None:
    upper = _line(value).strip().upper()
    return upper if re.fullmatch(r"[A-Z0-9_ ]{0,16}", upper) else None


def _date(value: str) -> str | None:
    """YYYYMMDD, or the YYYY.MM.DD of ACR-NEMA (PS3.5 6.2, note to DA)."""
    digits = _line(value).strip().replace(".", "")
    if not digits:
        return ""
    try:
        datetime.strptime(digits, "%Y%m%d")  # noqa: DTZ007 - a calendar day, no moment
    except ValueError:
        return None
    return digits if len(digits) == 8 else None


def _time(value: str) -> str | None:
    text = _line(value).strip().replace(":", "")
    return text if not text or _TIME.fullmatch(text) else None


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        text = _line(value).strip()
        return text if not text or pattern.fullmatch(text) else None

    return check


def _number(value: str) -> str | None:
    text = _line(value).strip()
    try:
        return text if not text or abs(float(text)) < float("inf") else None
    except ValueError:
        return None


_CLEANERS: Final[Mapping[str, Callable[[str], str | None]]] = {
    **dict.fromkeys(("PN", "LO", "SH", "UC"), _line),
    **dict.fromkeys(("LT", "ST", "UT"), _paragraph),
    **dict.fromkeys(("DS", "IS"), _number),
    "CS": _code_string,
    "DA": _date,
    "TM": _time,
    "DT": _matching(_DATE_TIME),
    "AS": _matching(re.compile(r"\d{3}[DWMY]")),
    "UI": _matching(_UID),
}


def utc_offset(header: Dataset) -> str | None:
    """(0008,0201) Timezone Offset From UTC when it is valid: it governs every date and time of the data set (PS3.3 C.12.1.1.8)."""
    value = str(header.get("TimezoneOffsetFromUTC", ""))
    return value if _OFFSET.fullmatch(value) else None


def pair(header: Dataset, keyword: str) -> tuple[Any, Any] | None:
    """Both values of an attribute that has two, such as Patient Orientation; None when it is absent, empty or has another number."""
    value = header.get(keyword)
    values: Iterable[Any] = value if isinstance(value, MultiValue | list | tuple) else ()
    found = [item for item in values if item not in (None, "")]
    return (found[0], found[1]) if len(found) == 2 else None
