"""The header of a source image, made fit for a report.

Read by its own rules, decoded to Unicode, each value valid or dropped.

Reports inherit patient and study from an image, and images come with every fault there is. An
element that a report needs and an image lacks is empty here (type 2). Unreadable elements are
dropped, and texts are cut to the length of their Value Representation. But identifiers of a patient
or an order are copied whole, however long, or the report is not made: a shortened Accession Number
is another order.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any, Final, Protocol

from pydicom.datadict import dictionary_VR
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.multival import MultiValue
from pydicom.tag import Tag
from pydicom.uid import ExplicitVRBigEndian, ImplicitVRLittleEndian

from hilum.dicom.elements import skimmed
from hilum.domain import ImageReason, Instance
from hilum.errors import NotAnalysed
from hilum.report.headers.elements import cleaned_elements
from hilum.report.headers.inherited import OF_FIRST, OF_OTHERS
from hilum.report.headers.suppress_warnings import quietly
from hilum_preprocessing.header.elements import MALFORMED
from hilum_preprocessing.header.structure import CountedBytes

# Type 2 in the Patient and General Study modules (PS3.3 C.7.1.1, C.7.2.1): present in every report,
# if need be empty.
TYPE_2: Final = {
    Tag(keyword): dictionary_VR(keyword)
    for keyword in (
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
}
_SOP_CLASS = Tag("SOPClassUID")
_SOP_INSTANCE = Tag("SOPInstanceUID")
STUDY = Tag("StudyInstanceUID")
_SERIES = Tag("SeriesInstanceUID")
SEX = Tag("PatientSex")
CHARACTER_SET = Tag("SpecificCharacterSet")
SEXES: Final = frozenset({"M", "F", "O"})
_OFFSET: Final = re.compile(r"[+-](0\d|1[0-4])[0-5]\d")


def read_header(instance: Instance) -> Dataset:
    """Return the elements that documents use of the image that gives them patient and study.

    The data set is clean and in Unicode. Raises NotAnalysed(corrupt_header) when the header cannot
    be read at all, or holds an identifier that only a change would make valid.
    """
    with quietly():
        clean = _read(instance, OF_FIRST)
        _complete(clean)
    return clean


def read_descriptors(instance: Instance) -> Dataset:
    """Return the descriptors of a further image.

    Raises the exceptions of `read_header`, but no damaged identifier is among these elements.
    """
    with quietly():
        return _read(instance, OF_OTHERS)


def raw_header(instance: Instance) -> Dataset:
    """Return the stored header as it is, for readers that expect any fault of a value.

    Raises NotAnalysed(corrupt_header) when it cannot be read at all.
    """
    is_implicit = instance.transfer_syntax_uid == ImplicitVRLittleEndian
    with quietly():
        return _parse(instance.header, is_implicit, is_implicit or is_usual(instance))


def read_elements(
    encoded: bytes, wanted: Container[int], *, is_implicit: bool = False, is_little: bool = True
) -> Dataset:
    """Return these elements, clean and in Unicode.

    Raises the exceptions of `read_header`. Call it inside `quiet`.
    """
    dataset = _parse(encoded, is_implicit, is_little)
    return cleaned_elements(dataset, [tag for tag in dataset.keys() if int(tag) in wanted])  # noqa: SIM118 - as in `_safe`


def is_usual(instance: Instance) -> bool:
    """Return whether the header is in Explicit VR Little Endian (PS3.5 10).

    All Transfer Syntaxes but two have it.
    """
    return instance.transfer_syntax_uid not in (ImplicitVRLittleEndian, ExplicitVRBigEndian)


def _read(instance: Instance, wanted: frozenset[int]) -> Dataset:
    if is_usual(instance):
        clean = read_elements(skimmed(instance.header, wanted | {CHARACTER_SET}), wanted)
    else:
        is_implicit = instance.transfer_syntax_uid == ImplicitVRLittleEndian
        clean = read_elements(
            instance.header, wanted, is_implicit=is_implicit, is_little=is_implicit
        )
    _identify(clean, instance)
    return clean


def _parse(encoded: bytes, is_implicit: bool, is_little: bool) -> Dataset:
    try:
        return read_dataset(CountedBytes(encoded), is_implicit, is_little)
    except MALFORMED as error:
        raise NotAnalysed(
            ImageReason.CORRUPT_HEADER, f"the stored header cannot be read: {type(error).__name__}"
        ) from None


def _identify(clean: Dataset, instance: Instance) -> None:
    """The ledger's word counts, not the header's."""
    clean.add_new(_SOP_CLASS, "UI", instance.sop_class_uid)
    clean.add_new(_SOP_INSTANCE, "UI", instance.sop_instance_uid)
    clean.add_new(STUDY, "UI", instance.study_instance_uid)
    clean.add_new(_SERIES, "UI", instance.series_instance_uid)


def _complete(clean: Dataset) -> None:
    for tag, vr in TYPE_2.items():
        if tag not in clean:
            clean.add_new(tag, vr, "")
    if clean[SEX].value not in SEXES:
        clean.add_new(SEX, "CS", "")  # PS3.3 C.7.1.1: M, F and O are the only defined values
    clean.add_new(CHARACTER_SET, "CS", "ISO_IR 192")


class Said(Protocol):
    """A header, or an extract of one."""

    def get(self, keyword: str, default: Any = None, /) -> Any:  # noqa: ANN401 - any type of an attribute
        """Value of an attribute."""


def utc_offset(header: Said) -> str | None:
    """(0008,0201) Timezone Offset From UTC when it is valid.

    It governs every date and time of the data set (PS3.3 C.12.1.1.8).
    """
    value = str(header.get("TimezoneOffsetFromUTC", ""))
    return value if _OFFSET.fullmatch(value) else None


def pair(header: Said, keyword: str) -> tuple[Any, Any] | None:
    """Return both values of an attribute that has two, such as Patient Orientation.

    None when it is absent, empty or has another number.
    """
    value = header.get(keyword)
    values: Iterable[Any] = value if isinstance(value, MultiValue | list | tuple) else ()
    found = [item for item in values if item not in (None, "")]
    return (found[0], found[1]) if len(found) == 2 else None
