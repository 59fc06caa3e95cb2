"""Rejection notes (IHE Imaging Object Change Management).

They are Key Object Selection documents whose title gives the reason of the rejection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Final

from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset

from hilum.dicom.uid import is_like_uid
from hilum.domain import Rejection, RemovalReason
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.statuses import CannotUnderstand, HeaderTooComplex, UnsupportedObject
from hilum_preprocessing.header.element_index import encoding_of
from hilum_preprocessing.header.elements import MALFORMED
from hilum_preprocessing.header.structure import MAXIMUM_LISTED, TooComplex, require_bounded

# CID 7010 Key Object Selection Document Title (PS3.16), those with a meaning in IHE RAD TF-2 4.66.
TITLES: Final[Mapping[str, RemovalReason]] = {
    "113001": RemovalReason.QUALITY,
    "113037": RemovalReason.PATIENT_SAFETY,
    "113038": RemovalReason.WORKLIST_ENTRY,
    "113039": RemovalReason.RETENTION_EXPIRED,
}
_MAXIMUM_REFERENCES: Final = 10_000


def read_note(
    meta: FileMeta, data_set: bytes | bytearray, *, holds_for_all: bool = False
) -> list[Rejection]:
    """Return the images that a note rejects, at least one; `holds_for_all`: see Rejection.

    Raises NotForUs for key objects of other titles, CannotUnderstand.
    """
    encoding = encoding_of(meta.transfer_syntax_uid)
    try:
        require_bounded(
            data_set,
            is_implicit=encoding.is_implicit,
            order=encoding.byte_order,
            most=MAXIMUM_LISTED,
        )
        note = read_dataset(BytesIO(data_set), encoding.is_implicit, encoding.byte_order == "<")
        return _rejections(note, meta, holds_for_all=holds_for_all)
    except TooComplex:
        raise HeaderTooComplex("The rejection note names too many instances") from None
    except MALFORMED:
        raise CannotUnderstand("The Key Object Selection document cannot be read") from None


def _rejections(note: Dataset, meta: FileMeta, *, holds_for_all: bool) -> list[Rejection]:
    reason = _reason(note)
    studies = dict(_studies(note))
    own_study = str(note.StudyInstanceUID)
    named = [uid for item in note.get("ContentSequence", []) for uid in _references(item)]
    if not named:
        raise CannotUnderstand("The rejection note names no instance")
    if len(named) > _MAXIMUM_REFERENCES or not all(
        is_like_uid(uid) for uid in (*named, *studies.values())
    ):
        raise CannotUnderstand("The rejection note names too many instances, or a bad UID")
    said = (reason, meta.sop_instance_uid, meta.calling_ae_title, holds_for_all)
    return [Rejection(uid, studies.get(uid, own_study), *said) for uid in dict.fromkeys(named)]


def _reason(note: Dataset) -> RemovalReason:
    """Return the reason by Document Title, the root's Concept Name Code Sequence (0040,A043).

    See PS3.3 C.17.3.
    """
    titles = list(note.get("ConceptNameCodeSequence") or ())
    title = titles[0] if len(titles) == 1 else Dataset()
    reason = (
        TITLES.get(str(title.get("CodeValue", "")))
        if title.get("CodingSchemeDesignator") == "DCM"
        else None
    )
    if reason is None:
        raise UnsupportedObject("Of KOS only rejection notes (113001, 113037-113039) are taken")
    return reason


def _studies(note: Dataset) -> Iterator[tuple[str, str]]:
    """Return Study Instance UIDs by SOP Instance UID, from the evidence sequence.

    It is Current Requested Procedure Evidence Sequence (PS3.3 C.17.6.2).
    """
    for study in note.get("CurrentRequestedProcedureEvidenceSequence", []):
        for series in study.get("ReferencedSeriesSequence", []):
            for uid in _references(series):
                yield uid, str(study.StudyInstanceUID)


def _references(item: Dataset) -> Iterator[str]:
    """Return the UIDs of Referenced SOP Sequence (0008,1199)."""
    for reference in item.get("ReferencedSOPSequence", []):
        yield str(reference.ReferencedSOPInstanceUID)
