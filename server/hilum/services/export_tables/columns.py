"""The columns of the exported tables; docs/archive/export.md is generated from them.

A new column at the end leaves FORMAT_VERSION as it is. A column that goes, or means something else,
raises it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hilum.domain import SeriesReason

FORMAT_VERSION: Final = 1

Cell = str | int | float | bool | None
"""A value of a row. Moments and days are ISO 8601 text; there is no empty text, but None."""


class ColumnType(StrEnum):
    """The type of a column, by its name in the documentation."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    MOMENT = "moment"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class ExportColumn:
    """One column. `is_foreign`: its text comes from outside, so CSV guards it as a formula."""

    name: str
    type: ColumnType
    meaning: str
    is_foreign: bool = False


class ExportTable(StrEnum):
    """An exported table."""

    IMAGES = "images"
    STUDIES = "studies"
    NOT_READ = "not_read"


class NotReadState(StrEnum):
    """Why a row stands in the table of the images that were not read."""

    NOT_ANALYSED = "not_analysed"
    WAITING = "waiting"
    FAILED = "failed"
    NOT_REQUESTED = "not_requested"
    MISSING = "missing"
    DEAD = "dead"
    NOTHING_TO_READ = "nothing_to_read"
    ERASED = "erased"
    GONE = "gone"
    OTHER_STUDY = "other_study"


STATE_SENTENCES: Final[Mapping[NotReadState, str]] = {
    NotReadState.NOT_ANALYSED: "The release gave no number for this image.",
    NotReadState.WAITING: "There is no result of this image yet.",
    NotReadState.FAILED: "The study failed before its result, and needs a person.",
    NotReadState.NOT_REQUESTED: "This image was not given to the release.",
    NotReadState.MISSING: "The image of the campaign did not come.",
    NotReadState.DEAD: "Not all images of this series could be fetched.",
    NotReadState.NOTHING_TO_READ: "The source lists no image of this series.",
    NotReadState.ERASED: "The image, or all images of the series, were erased.",
    NotReadState.GONE: (
        "The image came, and has no row any more: its study left by `retention.row_months`, or"
        " another study that it came in was erased."
    ),
    NotReadState.OTHER_STUDY: (
        "The image belongs to another study than the source lists; the detail has its UID: export"
        " that study (`--study`)."
    ),
}

SERIES_SENTENCES: Final[Mapping[str, str]] = {
    SeriesReason.NOT_RECEIVED: "The source promised the image, and it did not come.",
    SeriesReason.NOT_FOUND: "The source lists the image no more.",
    SeriesReason.OFFLINE: "The source says that the image is offline or unavailable.",
    SeriesReason.REFUSED_BY_SOURCE: "The source refuses to send it; the detail has its status.",
    SeriesReason.TIMED_OUT: "The request reached its limit of time.",
    SeriesReason.REFUSED_BY_HILUM: "Our own checks refused the object; the detail says why.",
    SeriesReason.CONFLICT: (
        "Other pixels are known under its SOP Instance UID (`hilum conflicts list`)."
    ),
    SeriesReason.UNREADABLE_FILE: "The file cannot be read.",
    SeriesReason.NOT_AN_IMAGE: "The file is no DICOM image, or no PNG or JPEG.",
    SeriesReason.ERASED: "The data of the patient, or of the study, was erased.",
}


def _text(name: str, meaning: str, *, is_foreign: bool = False) -> ExportColumn:
    return ExportColumn(name, ColumnType.TEXT, meaning, is_foreign)


_FORMAT = ExportColumn(
    "format_version", ColumnType.INTEGER, f"The version of these columns: {FORMAT_VERSION}."
)
_STUDY_UID = _text("study_instance_uid", "Study Instance UID (0020,000D).")
_SERIES_UID = _text("series_instance_uid", "Series Instance UID (0020,000E).")
_IMAGE_UID = _text("sop_instance_uid", "SOP Instance UID (0008,0018).")
_ORIGIN = _text(
    "origin",
    "The place of the image in its source, as the campaign has it: a path, a URL, or rows of a"
    " list. Empty: no campaign lists the image, or the source has no such place.",
    is_foreign=True,
)
_STUDY_ORIGIN = _text(
    "origin", "The origin that all listed images of the study share; else empty.", is_foreign=True
)
_CAMPAIGN = _text(
    "campaign",
    "The campaign that wanted the reading; else the newest one that lists the image. Empty: none.",
)
_RELEASE = _text("release", "The release, `name@version`.")
_PREPROCESSING = _text(
    "preprocessing_version", "The version of the preprocessing, as in the report."
)
_FLAGS = _text(
    "flags",
    "Doubts about the image, separated by spaces ([states.md](../reference/states.md)).",
)
_FINDING = (
    _text("finding", "The key of the finding in the release's manifest."),
    _text("finding_text", "The finding in words, as in the report.", is_foreign=True),
    _text(
        "code_scheme",
        "Coding Scheme Designator of a verified code. Empty: the finding has none.",
    ),
    _text("code_value", "Code Value of a verified code."),
    ExportColumn("logit", ColumnType.NUMBER, "The output of the network."),
    ExportColumn("score", ColumnType.NUMBER, "The activation of the logit. It is no probability."),
)
_IMAGE_PROBABILITY = ExportColumn(
    "probability",
    ColumnType.NUMBER,
    "Only of a calibrated release, and only where the finding of the study comes from this image"
    " alone.",
)
_STUDY_PROBABILITY = ExportColumn("probability", ColumnType.NUMBER, "Only of a calibrated release.")
_OPERATING_POINT = ExportColumn(
    "operating_point", ColumnType.NUMBER, "On the scale of the score. Empty: the finding has none."
)
_IMAGE_DECISION = _text(
    "decision",
    "`present` if the score of this image reaches the operating point, else `absent`;"
    " `undecided` without an operating point, or of untrained weights.",
)
_STUDY_DECISION = _text(
    "decision", "`present`, `absent` or `undecided`, as in the report of the study."
)
_RESULT = (
    ExportColumn("is_trained", ColumnType.BOOLEAN, "Whether the weights are trained."),
    ExportColumn("is_calibrated", ColumnType.BOOLEAN, "Whether the release has a calibration."),
    ExportColumn(
        "is_shadow", ColumnType.BOOLEAN, "Whether it is of a shadow (`--shadows`), never reported."
    ),
    ExportColumn(
        "revision", ColumnType.INTEGER, "The number of the result among those of its study."
    ),
    ExportColumn(
        "is_current",
        ColumnType.BOOLEAN,
        "Whether no newer result has replaced it; always true without `--all-revisions`.",
    ),
)
_SENDERS = (
    _text("calling_ae_title", "The AE Title that sent the study.", is_foreign=True),
    _text("called_ae_title", "The AE Title that it was sent to.", is_foreign=True),
)
_STUDY_DATE = ExportColumn(
    "study_date",
    ColumnType.DAY,
    "Study Date (0008,0020). Empty: it is missing, or is no date.",
)
_RECEIVED = ExportColumn("received_at", ColumnType.MOMENT, "When the image was received.")
_READ = ExportColumn("read_at", ColumnType.MOMENT, "When the reading of the image ended.")
_RESULT_AT = ExportColumn("result_at", ColumnType.MOMENT, "When the result was made.")

IDENTIFIERS: Final = (
    _text("accession_number", "Accession Number (0008,0050).", is_foreign=True),
    _text("patient_id", "Patient ID (0010,0020).", is_foreign=True),
    _text("issuer_of_patient_id", "Issuer of Patient ID (0010,0021).", is_foreign=True),
)
"""Columns that name a patient: at the end of each table, with `--identifiers` only."""

TABLES: Final[Mapping[ExportTable, Sequence[ExportColumn]]] = {
    ExportTable.IMAGES: (
        _FORMAT,
        _STUDY_UID,
        _SERIES_UID,
        _IMAGE_UID,
        _ORIGIN,
        _CAMPAIGN,
        _RELEASE,
        _PREPROCESSING,
        _text("view", "The view, as the reading has it."),
        _FLAGS,
        *_FINDING,
        _IMAGE_PROBABILITY,
        _OPERATING_POINT,
        _IMAGE_DECISION,
        *_RESULT,
        *_SENDERS,
        _STUDY_DATE,
        _RECEIVED,
        _READ,
        _RESULT_AT,
    ),
    ExportTable.STUDIES: (
        _FORMAT,
        _STUDY_UID,
        _STUDY_ORIGIN,
        _CAMPAIGN,
        _RELEASE,
        _PREPROCESSING,
        _text("outcome", "`analysed`, or `partial`: an image that should be read has no number."),
        _text("reason", "Why the outcome is `partial`."),
        ExportColumn("images", ColumnType.INTEGER, "Images of the study in this result."),
        ExportColumn("images_read", ColumnType.INTEGER, "Those of them that have numbers."),
        *_FINDING,
        _STUDY_PROBABILITY,
        _OPERATING_POINT,
        _STUDY_DECISION,
        _text(
            "source_sop_instance_uids",
            "The images that the finding comes from, separated by spaces.",
        ),
        *_RESULT,
        *_SENDERS,
        _STUDY_DATE,
        _RESULT_AT,
    ),
    ExportTable.NOT_READ: (
        _FORMAT,
        _STUDY_UID,
        _SERIES_UID,
        _text("sop_instance_uid", "SOP Instance UID; empty: the row is about a whole series."),
        _ORIGIN,
        _CAMPAIGN,
        _text("release", "The release. Empty: none was asked to read it."),
        _text("state", "See below."),
        _text("reason", "The reason, from a closed list ([states.md](../reference/states.md))."),
        _text("sentence", "The reason in words, or the state where there is no reason."),
        _text("detail", "What was observed, such as `Rows is 0`.", is_foreign=True),
        *_SENDERS,
        _STUDY_DATE,
        _RECEIVED,
        _READ,
    ),
}


def columns_of(table: ExportTable, *, has_identifiers: bool) -> tuple[ExportColumn, ...]:
    """Return the columns of a table in their order."""
    return (*TABLES[table], *(IDENTIFIERS if has_identifiers else ()))
