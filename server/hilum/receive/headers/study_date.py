"""The date of a study: Study Date (0008,0020) of an encoded header, and a range of dates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from hilum.receive.headers.patient import read_texts

_STUDY_DATE = 0x00080020
_FORMATS = {8: "%Y%m%d", 10: "%Y.%m.%d"}  # PS3.5 6.2, VR DA, and as ACR-NEMA had it


@dataclass(frozen=True, slots=True)
class StudyDates:
    """A range of days, both included; None: no bound."""

    first: date | None = None
    last: date | None = None

    def is_of(self, header: bytes | memoryview, transfer_syntax_uid: str) -> bool:
        """Return whether a header's Study Date is in the range; False without a date.

        Raises CannotUnderstand if it cannot be read so far.
        """
        found = date_of(read_study_date(header, transfer_syntax_uid))
        return found is not None and (self.first or found) <= found <= (self.last or found)


def read_study_date(header: bytes | memoryview, transfer_syntax_uid: str) -> str:
    """Return Study Date as in the header, empty where it is missing. Raises CannotUnderstand."""
    return read_texts(header, transfer_syntax_uid, (_STUDY_DATE,))[0]


def date_of(text: str) -> date | None:
    """Return the day of a value of the VR DA; None: it is no date."""
    if (form := _FORMATS.get(len(text))) is None:
        return None
    try:
        return datetime.strptime(text, form).date()  # noqa: DTZ007 - a day has no zone
    except ValueError:
        return None
