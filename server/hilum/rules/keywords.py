"""Attributes that a rule may name: keywords of the DICOM dictionary, without those of identity."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

_PATIENT_GROUP: Final = 0x0010
# Of the patient's group those that many patients share.
_SHARED: Final = frozenset(
    (
        "PatientSex",
        "PatientSize",
        "PatientWeight",
        "PatientSpeciesDescription",
        "PatientBreedDescription",
        "PregnancyStatus",
    )
)
# Beside them (PS3.15 table E.1-1): they name one person, one order or one study.
_IDENTIFYING: Final = frozenset(
    (
        "AccessionNumber",
        "AdmissionID",
        "CurrentPatientLocation",
        "FillerOrderNumberImagingServiceRequest",
        "MediaStorageSOPInstanceUID",
        "PerformedProcedureStepID",
        "PlacerOrderNumberImagingServiceRequest",
        "RequestedProcedureID",
        "ScheduledProcedureStepID",
        "SeriesInstanceUID",
        "ServiceEpisodeID",
        "SOPInstanceUID",
        "StudyID",
        "StudyInstanceUID",
    )
)
_INSTEAD: Final = {
    "PatientAge": "use age = {min = …, max = …}, in years",
    "PatientBirthDate": "use age = {min = …, max = …}, in years",
    "TransferSyntaxUID": "it says nothing of the study; use Modality, or calling",
}
_NO_FACT: Final = {
    "release": "the releases are what a rule decides",
    "releases": "the releases are what a rule decides",
    "priority": "the priority is what a rule decides",
    "source": "use campaign = true for what campaigns fetch, or calling and called",
    "sender": "use calling, or peer",
}
_NUMBERS_AS_TEXT: Final = frozenset(("DS", "IS"))
_TEXTS: Final = frozenset(
    ("AE", "CS", "DA", "DT", "LO", "LT", "SH", "ST", "TM", "UC", "UI", "UR", "UT")
)
BINARY: Final = {
    "US": "H",
    "SS": "h",
    "UL": "I",
    "SL": "i",
    "FL": "f",
    "FD": "d",
    "UV": "Q",
    "SV": "q",
}
"""Value Representations of binary numbers, each with its letter of struct."""
ONE_VALUE: Final = frozenset(("LT", "ST", "UT", "UR"))
"""In these a backslash is text (PS3.5 6.2)."""


class WrongCondition(ValueError):
    """A condition that means nothing. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of the header. `is_of_patient`: its value is not shown."""

    keyword: str
    tag: int
    vr: str

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return self.vr in _NUMBERS_AS_TEXT or self.vr in BINARY

    @property
    def is_of_patient(self) -> bool:
        """Whether its value says something of the patient."""
        return self.tag >> 16 == _PATIENT_GROUP


def attribute_of(keyword: str, others: tuple[str, ...] = ()) -> Attribute:
    """Return the attribute of a keyword. `others`: names that may stand in its place.

    Raises WrongCondition with what to do.
    """
    if instead := _NO_FACT.get(keyword):
        raise WrongCondition(f"is not known at the first image: {instead}")
    from pydicom.datadict import (  # noqa: PLC0415 - settings without rules do without it
        dictionary_VR,
        tag_for_keyword,
    )

    tag = tag_for_keyword(keyword)
    if tag is None:
        raise WrongCondition(f"no attribute of DICOM and no fact of ours{_meant(keyword, others)}")
    vr = dictionary_VR(tag).partition(" or ")[0]
    if instead := _INSTEAD.get(keyword):
        raise WrongCondition(f"cannot be a condition: {instead}")
    if keyword in _IDENTIFYING or _is_of_one_patient(keyword, tag, vr):
        raise WrongCondition(
            "names a person, an order or one study, and rules stand in files and logs; use what"
            " many studies share, such as Modality, StudyDescription or calling"
        )
    if not 0x0008 <= tag >> 16 < 0x7FE0 or vr not in _TEXTS | _NUMBERS_AS_TEXT | BINARY.keys():
        raise WrongCondition(
            f"cannot be a condition: a rule reads texts and numbers of the header, and this is {vr}"
        )
    return Attribute(keyword, tag, vr)


def _is_of_one_patient(keyword: str, tag: int, vr: str) -> bool:
    return vr == "PN" or (tag >> 16 == _PATIENT_GROUP and keyword not in _SHARED)


def _meant(keyword: str, others: tuple[str, ...]) -> str:
    from pydicom.datadict import keyword_dict  # noqa: PLC0415 - the same

    known = [*others, *(name for name in keyword_dict if name)]
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(keyword.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return (
        f"; facts of ours are {', '.join(others)}, and DICOM's keywords stand in PS3.6, such as"
        " Modality"
    )
