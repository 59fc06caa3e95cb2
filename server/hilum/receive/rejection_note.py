"""Rejection notes (IHE Imaging Object Change Management): Key Object Selection documents whose title says why images are rejected."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Final

from pydicom.dataset import Dataset
from pydicom.errors import BytesLengthException
from pydicom.filereader import read_dataset

from hilum.domain import Rejection, RemovalReason
from hilum.receive.elements import encoding_of
from hilum.receive.file_meta import FileMeta
from hilum.receive.header import is_like_uid
from hilum.receive.refusals import CannotUnderstand, HeaderTooComplex, NotForUs
from hilum_preprocessing.structure import MAXIMUM_LISTED, TooComplex, require_bounded

# CID 7010 Key Object Selection Document Title (PS3.16), those that IHE RAD TF-2 4.66 gives a meaning to.
TITLES: Final[Mapping[str, RemovalReason]] = {
    "113001": RemovalReason.QUALITY,
    "113037": RemovalReason.PATIENT_SAFETY,
    "113038": RemovalReason.WORKLIST_ENTRY,
    "113039": RemovalReason.RETENTION_EXPIRED,
}
_MAXIMUM_REFERENCES: Final = 10_000
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


def read_note(meta: FileMeta, data_set: bytes | bytearray, *, holds_for_all: bool = False) -> list[Rejection]:
    """The images that a note rejects, at least one; `holds_for_all`: see Rejection.

    Raises NotForUs for key objects of other titles, CannotUnderstand.
    """
    encoding = encoding_of(meta.transfer_syntax_uid)
    try:
        require_bounded(data_set, is_implicit=encoding.is_implicit, order=encoding.byte_order, most=MAXIMUM_LISTED)
        note = read_dataset(BytesIO(data_set), encoding.is_implicit, encoding.byte_order == "<")
        return _rejections(note, meta, holds_for_all=holds_for_all)
    except TooComplex:
        raise HeaderTooComplex("The rejection note names too many instances") from None
    except _UNREADABLE:
        raise CannotUnderstand("The Key Object Selection document cannot be read") from None


def _rejections(note: Dataset, meta: FileMeta, *, holds_for_all: bool) -> list[Rejection]:
    reason = _reason(note)
    studies = dict(_studies(note))
    own_study = str(note.StudyInstanceUID)
    named = [uid for item in note.get("ContentSequence", []) for uid in _references(item)]
    if not named:
        raise CannotUnderstand("The rejection note names no instance")
    if len(named) > _MAXIMUM_REFERENCES or not all(is_like_uid(uid) for uid in (*named, *studies.values())):
        raise CannotUnderstand("The rejection note names too many instances, or a bad UID")
    said = (reason, meta.sop_instance_uid, meta.calling_ae_title, holds_for_all)
    return [Rejection(uid, studies.get(uid, own_study), *said) for uid in dict.fromkeys(named)]


def _reason(note: Dataset) -> RemovalReason:
    """By Document Title, Concept Name Code Sequence (0040,A043) of the root (PS3.3 C.17.3)."""
    titles = list(note.get("ConceptNameCodeSequence") or ())
    title = titles[0] if len(titles) == 1 else Dataset()
    reason = TITLES.get(str(title.get("CodeValue", ""))) if title.get("CodingSchemeDesignator") == "DCM" else None
    if reason is None:
        raise NotForUs("Of KOS only rejection notes (113001, 113037-113039) are taken")
    return reason


def _studies(note: Dataset) -> Iterator[tuple[str, str]]:
    """SOP Instance UID to Study Instance UID, from Current Requested Procedure Evidence Sequence (PS3.3 C.17.6.2)."""
    for study in note.get("CurrentRequestedProcedureEvidenceSequence", []):
        for series in study.get("ReferencedSeriesSequence", []):
            for uid in _references(series):
                yield uid, str(study.StudyInstanceUID)


def _references(item: Dataset) -> Iterator[str]:
    """Referenced SOP Sequence (0008,1199)."""
    for reference in item.get("ReferencedSOPSequence", []):
        yield str(reference.ReferencedSOPInstanceUID)
