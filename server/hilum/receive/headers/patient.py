"""The owner of an image: its patient, study and order, from an encoded header.

Only Patient ID, its issuer, Study Instance UID and Accession Number are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydicom.uid import DeflatedExplicitVRLittleEndian

from hilum.dicom.charset import texts_of
from hilum.dicom.elements import values_in
from hilum.domain import Identity, Instance
from hilum.receive.headers import file_meta
from hilum.receive.statuses import CannotUnderstand, understood

_SPECIFIC_CHARACTER_SET = 0x00080005
_ACCESSION_NUMBER = 0x00080050
_PATIENT_ID = 0x00100020
_ISSUER = 0x00100021
_STUDY_INSTANCE_UID = 0x0020000D
BEGINNING_BYTES = 1 << 20


class HeaderOwner(Protocol):
    """A possible owner of an object."""

    def is_of(self, header: bytes | memoryview, transfer_syntax_uid: str) -> bool:
        """Return whether a header names it. Raises CannotUnderstand if it cannot be read so far."""


@dataclass(frozen=True, slots=True)
class Patient:
    """The identity by which a patient is searched for. `issuer` None: any issuer of the ID."""

    patient_id: str
    issuer: str | None = None

    def is_of(self, header: bytes | memoryview, transfer_syntax_uid: str) -> bool:
        """Return whether a header names this patient.

        Raises CannotUnderstand if it cannot be read so far.
        """
        wanted = self.patient_id
        # Every character set of DICOM writes ASCII as ASCII: most headers are ruled out without
        # being parsed.
        if wanted.isascii() and wanted.encode() not in bytes(header):
            return False
        found = read_patient(header, transfer_syntax_uid)
        return found.patient_id == wanted and self.issuer in (None, found.issuer)

    def issuer_in(self, header: bytes | memoryview, transfer_syntax_uid: str) -> str:
        """Return the issuer of the header's Patient ID; empty: the header has none.

        Raises CannotUnderstand.
        """
        return read_patient(header, transfer_syntax_uid).issuer or ""


@dataclass(frozen=True, slots=True)
class OneStudy:
    """The identity by which a study is searched for."""

    study_instance_uid: str

    def is_of(self, header: bytes | memoryview, transfer_syntax_uid: str) -> bool:
        """Return whether a header names this study.

        Raises CannotUnderstand if it cannot be read so far.
        """
        # most headers are ruled out without being parsed
        if self.study_instance_uid.encode() not in bytes(header):
            return False
        return read_texts(header, transfer_syntax_uid, (_STUDY_INSTANCE_UID,)) == [
            self.study_instance_uid
        ]


def read_patient(header: bytes | memoryview, transfer_syntax_uid: str) -> Patient:
    """Return Patient ID (0010,0020) and Issuer of Patient ID (0010,0021), empty where missing.

    Raises CannotUnderstand.
    """
    return Patient(*read_texts(header, transfer_syntax_uid, (_PATIENT_ID, _ISSUER)))


def identity_of(image: Instance) -> Identity:
    """Return the patient and the order in the stored header of an image.

    It is empty where the header cannot be read so far.
    """
    try:
        values = read_texts(
            image.header, image.transfer_syntax_uid, (_ACCESSION_NUMBER, _PATIENT_ID, _ISSUER)
        )
    except CannotUnderstand:
        return Identity()
    return Identity(accession_number=values[0], patient_id=values[1], issuer=values[2])


def is_file_of(file: Path, owner: HeaderOwner) -> bool:
    """Return whether a stored object is of this patient or study.

    Raises CannotUnderstand, OSError.
    """
    with file.open("rb") as stream:
        return is_object_of(stream.read(BEGINNING_BYTES), owner)


def is_object_of(encoded: bytes, owner: HeaderOwner) -> bool:
    """Return whether an encoded object is of this patient or study.

    The object has its File Meta Information; its beginning is enough. Raises CannotUnderstand.
    """
    beginning = memoryview(encoded)
    meta, start = file_meta.decode(beginning)
    is_deflated = meta.transfer_syntax_uid == DeflatedExplicitVRLittleEndian
    return owner.is_of(
        _inflated(beginning[start:]) if is_deflated else beginning[start:], meta.transfer_syntax_uid
    )


def _inflated(data_set: memoryview) -> bytes:
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data_set, BEGINNING_BYTES)
    except zlib.error:
        raise CannotUnderstand("The data set is not deflated as its Transfer Syntax says") from None


def read_texts(
    header: bytes | memoryview, transfer_syntax_uid: str, tags: Sequence[int]
) -> list[str]:
    """Return the values of these elements, LO, SH or UI, empty where they are missing.

    Raises CannotUnderstand.
    """
    with understood:
        values = values_in(header, transfer_syntax_uid, (_SPECIFIC_CHARACTER_SET, *tags))
    names = values.get(_SPECIFIC_CHARACTER_SET, b"")
    return texts_of([values.get(tag, b"") for tag in tags], names)
