"""The patients that a specification is for: their age against its least age. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from pydicom.dataset import Dataset

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import word
from hilum_preprocessing.spec import fields
from hilum_preprocessing.spec.fields import read_by

_OLDEST_YEARS: Final = 125.0
# Dates that anonymisers and worklists write for "unknown" lie before these. No digital radiograph
# is older than its file format.
_EARLIEST_BIRTH: Final = date(1900, 1, 2)
_EARLIEST_STUDY: Final = date(1950, 1, 1)
_STUDY_DATES: Final = (
    "StudyDate",
    "AcquisitionDate",
    "SeriesDate",
    "ContentDate",
    "AcquisitionDateTime",
)
# PS3.5 6.2: AS is three digits and D, W, M or Y. Public chest radiographs hold "62", "62Y" and "62
# YEARS" as well.
_AGE: Final = re.compile(r"(\d{1,3})\s*(?:([DWMY])[A-Z]*)?")
_UNITS_A_YEAR: Final[Mapping[str, float]] = {"D": 365.25, "W": 52.18, "M": 12.0, "Y": 1.0}
_DATE: Final = re.compile(r"(\d{4})([.\-/]?)(\d{2})\2(\d{2})(?:[ T]?\d{2}:?\d{2}.*)?")


@dataclass(frozen=True, slots=True)
class Population:
    """The patients that a release may read.

    `minimum_age_years` 0: of any age. `cites` says where the least age comes from.
    """

    minimum_age_years: float = read_by(
        fields.number, 0.0, "patients known to be younger are not analysed; 0: of any age"
    )
    cites: str = read_by(fields.text, "", "where that age comes from: training data, intended use")

    def check(self, dataset: Dataset) -> None:
        """Raises NotAnalysable (child) for a patient known to be younger.

        A patient without a believable age is not refused: see the flags.
        """
        age = age_years(dataset) if self.minimum_age_years else None
        if age is not None and age < self.minimum_age_years:
            raise NotAnalysable(Reason.CHILD, f"younger than {self.minimum_age_years:g} years")


def age_years(dataset: Dataset) -> float | None:
    """Patient's Age, else from the birth date to the day of the study.

    None when neither is there and believable.

    An age of zero gives way to dates that are believable: anonymisers write 000Y for adults.
    """
    stated = _stated(_text(dataset, "PatientAge"))
    if stated is not None and 0 < stated <= _OLDEST_YEARS:
        return stated
    by_dates = _between(dataset)
    return stated if by_dates is None and stated == 0 else by_dates


def _text(dataset: Dataset, keyword: str) -> str:
    """The first value; "" when it is absent or unreadable.

    An age that cannot be read says nothing about the pixels.
    """
    try:
        return word(dataset, keyword)
    except NotAnalysable:
        return ""


def _stated(text: str) -> float | None:
    """In years. Zero without a unit is a placeholder, and no age."""
    found = _AGE.fullmatch(text)
    if found is None or (int(found[1]) == 0 and found[2] is None):
        return None
    return int(found[1]) / _UNITS_A_YEAR[found[2] or "Y"]


def _between(dataset: Dataset) -> float | None:
    """From the birth to the first date of the study that is believable."""
    born = _date(_text(dataset, "PatientBirthDate"))
    if born is None or born < _EARLIEST_BIRTH:
        return None
    studied = (_date(_text(dataset, keyword)) for keyword in _STUDY_DATES)
    last = next((day for day in studied if day is not None and day >= _EARLIEST_STUDY), None)
    age = (last - born).days / 365.25 if last else -1.0
    return age if 0 <= age <= _OLDEST_YEARS else None


def _date(text: str) -> date | None:
    """YYYYMMDD, or the YYYY.MM.DD of ACR-NEMA (PS3.5 6.2, note to DA).

    Other marks between are as common. A time may follow.
    """
    found = _DATE.fullmatch(text)
    try:
        return date(*map(int, found.group(1, 3, 4))) if found else None
    except ValueError:
        return None
