"""The identifiers of a study in an encoded header, and searches for several of them at once."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.domain import Identifiers
from hilum.receive.headers.patient import HeaderOwner, read_texts
from hilum.receive.headers.study_date import date_of

_TAGS = (0x00080020, 0x00080050, 0x00100020, 0x00100021)


@dataclass(frozen=True, slots=True)
class AllOf:
    """A study for which all of these conditions hold."""

    owners: tuple[HeaderOwner, ...]

    def is_of(self, header: bytes | memoryview, transfer_syntax_uid: str) -> bool:
        """Return whether all conditions hold.

        Raises CannotUnderstand if it cannot be read so far.
        """
        return all(owner.is_of(header, transfer_syntax_uid) for owner in self.owners)


def read_identifiers(header: bytes | memoryview, transfer_syntax_uid: str) -> Identifiers:
    """Return the identifiers of a header. Raises CannotUnderstand."""
    study_date, accession_number, patient_id, issuer = read_texts(
        header, transfer_syntax_uid, _TAGS
    )
    day = date_of(study_date)
    return Identifiers(patient_id, issuer, accession_number, day.isoformat() if day else study_date)
