"""Kinds of document, and encoded reports before and after they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from hilum.domain.dicom import (
    BASIC_TEXT,
    ENCAPSULATED_PDF,
    GRAYSCALE_PRESENTATION_STATE,
    SECONDARY_CAPTURE,
    SR_CLASS_PREFERENCE,
)

_DICOM: Final = "application/dicom"


class Made(Enum):
    """For which results a document is made.

    WITH_FINDINGS: also for a study that was not analysed, where a destination asks for it.
    WHERE_TAKEN: for those that a destination takes. DERIVED: from a stored document of its family.
    """

    ALWAYS = auto()
    WITH_FINDINGS = auto()
    WHERE_TAKEN = auto()
    DERIVED = auto()


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """One kind of document.

    `key` is its name in settings, rows and JSON. `label` is its name for people. `suffix` is that
    of its files. `names_patient`: erasure reads its content to find the results of a patient; all
    documents of a result are erased together, and one of them names the patient. `caption`: the
    words of pages under a picture; empty: it is no picture. `origin`: the kind that it is derived
    from. `sop_class_uid`: that of its objects. `says_findings`: on a study that was not analysed it
    is sent only where a destination asks for that, or where an earlier one may be.
    """

    key: str
    label: str
    media_type: str
    suffix: str
    made: Made = Made.WHERE_TAKEN
    names_patient: bool = False
    caption: str = ""
    origin: str = ""
    sop_class_uid: str = ""
    says_findings: bool = False

    @property
    def is_dicom(self) -> bool:
        """Whether it is a DICOM object, which C-STORE can send."""
        return self.media_type == _DICOM

    @property
    def is_picture(self) -> bool:
        """Whether pages show it."""
        return bool(self.caption)

    @property
    def series(self) -> str:
        """The name of its series among the identifiers of a result; empty: it has none."""
        return f"{self.origin or self.key}_series" if self.is_dicom else ""


SR: Final = DocumentKind(
    "sr",
    "Structured Report",
    _DICOM,
    "dcm",
    Made.WITH_FINDINGS,
    names_patient=True,
    sop_class_uid=SR_CLASS_PREFERENCE[0].sop_class_uid,
    says_findings=True,
)
JSON: Final = DocumentKind(
    "json", "JSON", "application/json", "json", Made.ALWAYS, names_patient=True
)
# Its header names the patient, too. It is large, and the JSON of the same result is read instead.
HEAT_MAP: Final = DocumentKind(
    "heatmap",
    "Heat map",
    _DICOM,
    "dcm",
    caption="where the model looked, at its own coarse resolution",
    sop_class_uid=SECONDARY_CAPTURE,
)
# The headers of these name the patient, too; as of the heat map, the JSON is read instead.
SHEET: Final = DocumentKind(
    "sheet",
    "Result sheet",
    _DICOM,
    "dcm",
    caption="the result on one page, for viewers that show no structured report",
    sop_class_uid=SECONDARY_CAPTURE,
    says_findings=True,
)
PDF: Final = DocumentKind(
    "pdf",
    "Result sheet as PDF",
    _DICOM,
    "dcm",
    sop_class_uid=ENCAPSULATED_PDF,
    says_findings=True,
)
# Not the last step of the SR's ladder: it has a UID and a series of its own.
TEXT_SR: Final = DocumentKind(
    "text_sr",
    "Text report",
    _DICOM,
    "dcm",
    names_patient=True,
    sop_class_uid=BASIC_TEXT.sop_class_uid,
    says_findings=True,
)
GSPS: Final = DocumentKind(
    "gsps",
    "Presentation state",
    _DICOM,
    "dcm",
    sop_class_uid=GRAYSCALE_PRESENTATION_STATE,
    says_findings=True,
)
# It names the patient, too, and the JSON of the same result is read instead.
HL7: Final = DocumentKind(
    "hl7", "HL7 v2 message", "x-application/hl7-v2+er7", "hl7", says_findings=True
)
FHIR: Final = DocumentKind(
    "fhir", "FHIR Bundle", "application/fhir+json", "fhir", says_findings=True
)
NOTICE: Final = DocumentKind("notice", "Notice", "application/json", "notice.json")
_DERIVED: Final = tuple(
    DocumentKind(
        item.kind,
        item.kind.replace("_", " "),
        _DICOM,
        "dcm",
        Made.DERIVED,
        names_patient=True,
        origin=SR.key,
        sop_class_uid=item.sop_class_uid,
        says_findings=True,
    )
    for item in SR_CLASS_PREFERENCE[1:]
)

DOCUMENT_KINDS: Final[Mapping[str, DocumentKind]] = {
    kind.key: kind
    for kind in (SR, *_DERIVED, JSON, HEAT_MAP, SHEET, PDF, TEXT_SR, GSPS, HL7, NOTICE, FHIR)
}


def kind_of(key: str) -> DocumentKind:
    """Return the row of a kind. One of another version is a row of bytes that stands for itself."""
    return DOCUMENT_KINDS.get(key) or DocumentKind(
        key, key.replace("_", " "), "application/octet-stream", "bin"
    )


def orderable_kinds() -> tuple[str, ...]:
    """Return the kinds that a destination may ask for."""
    return tuple(kind.key for kind in DOCUMENT_KINDS.values() if kind.made is not Made.DERIVED)


def identifier_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of all UIDs that a result gets: those of documents, and those of series."""
    kinds = DOCUMENT_KINDS.values()
    series: Iterator[str] = (kind.series for kind in kinds if kind.series)
    return tuple(kind.key for kind in kinds), tuple(dict.fromkeys(series))


@dataclass(frozen=True, slots=True)
class Document:
    """The encoded bytes of one report. They are sent as they are, never built again.

    `stem`: the name of its file without suffix, where it has no UID.
    """

    kind: str
    media_type: str
    content: bytes
    sop_class_uid: str | None = None
    sop_instance_uid: str | None = None
    series_instance_uid: str | None = None
    predecessor_uid: str | None = None
    result_id: int = 0
    id: int = 0
    stem: str = ""

    @property
    def file_name(self) -> str:
        """The name of its file, the same for the same document: by its UID, else by `stem`."""
        return f"{self.sop_instance_uid or self.stem or self.id}.{kind_of(self.kind).suffix}"


def file_stem(study_instance_uid: str, release: str, revision: int) -> str:
    """Return the name of a document without a UID, by its result."""
    return f"{study_instance_uid}_{release}_r{revision}"


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to store, and its destinations.

    `withheld`: destinations that do not get it, each with the reason, so that it is never silent.
    """

    document: Document
    destinations: tuple[str, ...]
    withheld: Mapping[str, str] = field(default_factory=dict)
