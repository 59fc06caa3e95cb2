"""The header of a source image, made fit for a report: read by its own rules, decoded to Unicode, each value valid or gone.

Reports inherit patient and study from an image, and images come with every fault there is. What a report needs and an image lacks
is empty here (type 2), what cannot be read is dropped, texts are cut to what their Value Representation holds. But what identifies a
patient or an order is copied whole, however long it is, or the report is not made: a shortened Accession Number is another order.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final

from pydicom.datadict import dictionary_VR
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
from hilum.report.cleaning import cleaned
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
# Type 1 in the items: Table 10-11 (references), Table 8.8-1 (codes), Table C.2-2 (other identifiers of the patient).
_NEEDED: Final = (
    (re.compile(r"Referenced(Study|Patient)Sequence"), ("ReferencedSOPClassUID", "ReferencedSOPInstanceUID")),
    (re.compile(r"\w+CodeSequence"), ("CodeValue", "CodingSchemeDesignator", "CodeMeaning")),
    (re.compile(r"OtherPatientIDsSequence"), ("PatientID", "TypeOfPatientID")),
)
_OFFSET: Final = re.compile(r"[+-](0\d|1[0-4])[0-5]\d")


def read_header(instance: Instance) -> Dataset:
    """Clean, Unicode data set of one image without its pixels.

    Raises NotAnalysed(corrupt_header) when it cannot be read at all, or holds an identifier that only a change would make valid.
    """
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
        value = _items(element) if vr == "SQ" else cleaned(tag, vr, element.value)
    except _UNREADABLE:
        return  # one unreadable element must not cost the report
    if value is not None:
        clean.add_new(tag, vr, value)


def _items(element: DataElement) -> Sequence | None:
    """The items that hold what their macro demands; a report inherits optional sequences only, so an empty one is left out."""
    needed = next((keywords for pattern, keywords in _NEEDED if pattern.fullmatch(element.keyword)), ())
    items = [_clean(item) for item in element.value]
    whole = [item for item in items if len(item) and all(item.get(keyword) for keyword in needed)]
    return Sequence(whole) if whole else None


def _vr(element: DataElement) -> str:
    """The Value Representation of PS3.6: a header may claim any other, and a date that calls itself a name is still no date."""
    allowed = dictionary_VR(element.tag).split(" or ")
    return element.VR if element.VR in allowed else allowed[0]


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
