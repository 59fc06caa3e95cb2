"""Plans by list: one study, or the studies of one accession number, for each row.

A row that names nothing never fails the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hilum.domain import ListRow, PlannedSeries, RowOutcome
from hilum.retrieve.query.plan_step import PlanStep, Questions, is_exact, is_uid, may_be_cut_off
from hilum.retrieve.source import (
    Answer,
    ImageSource,
    Level,
    ListedStudy,
    SourceError,
)
from hilum.settings import SourceSection

ACCESSION: Final = "accession"
STUDY_UID: Final = "study_uid"
_LIMIT: Final = 100


def plan_rows(
    source: ImageSource,
    settings: SourceSection,
    rows: Iterable[ListedStudy],
    modalities: Sequence[str],
    after: str = "",
) -> Iterator[PlanStep]:
    """Yield one step a row, behind the row number `after`. Raises SourceError of an outage."""
    questions = Questions(source, settings, modalities)
    done = int(after or 0)
    for row in rows:
        if row.number <= done:
            continue
        outcome, series = _planned(questions, row)
        yield PlanStep(
            str(row.number),
            tuple(series),
            questions.taken_doubts(),
            len(outcome.study_instance_uids),
            rows=(outcome,),
        )


def _planned(questions: Questions, row: ListedStudy) -> tuple[ListRow, list[PlannedSeries]]:
    """Return the outcome of a row, and its series."""
    if not (is_uid(row.value) if row.kind == STUDY_UID else is_exact(row.value)):
        return ListRow(row.number, RowOutcome.REFUSED, "no value that matches itself alone"), []
    try:
        studies = _studies(questions, row)
    except SourceError as error:
        if error.is_outage or error.is_final:
            raise
        questions.doubt(f"row {row.number} cannot be asked for: {error.detail}")
        return ListRow(row.number, RowOutcome.NONE, error.detail), []
    series = [
        replace(item, origin=str(row.number))
        for study in studies
        for item in questions.series_of(study)
    ]
    return _outcome(row, studies, series), series


def _outcome(
    row: ListedStudy, studies: Sequence[Answer], series: Sequence[PlannedSeries]
) -> ListRow:
    uids = tuple(study["StudyInstanceUID"] for study in studies)
    if not studies:
        return ListRow(row.number, RowOutcome.NONE, "the source knows no such study")
    if not series:
        detail = "the study has no series of the wanted modalities"
        return ListRow(row.number, RowOutcome.NONE, detail, uids)
    if len(studies) > 1:
        detail = f"{len(studies)} studies have this number; all are read"
        return ListRow(row.number, RowOutcome.AMBIGUOUS, detail, uids)
    return ListRow(row.number, RowOutcome.FOUND, "", uids)


def _studies(questions: Questions, row: ListedStudy) -> list[Answer]:
    """Return the studies that the row names, by an exact comparison of our own.

    Servers take `*` as a wildcard even where it is stored so; case and leading zeros matter.
    """
    accession = row.value if row.kind == ACCESSION else ""
    keys = {
        "StudyInstanceUID": row.value if row.kind == STUDY_UID else "",
        "AccessionNumber": accession,
        "StudyDate": "",
        "ModalitiesInStudy": "",
        "NumberOfStudyRelatedInstances": "",
    }
    answers = questions.ask(Level.STUDY, keys, _LIMIT)
    if may_be_cut_off(answers, _LIMIT):
        questions.doubt(f"row {row.number} may name more studies than the source lists")
    found = {item["StudyInstanceUID"]: item for item in answers.items if _is_named(item, row)}
    return list(found.values())


def _is_named(study: Answer, row: ListedStudy) -> bool:
    """Return whether a row names exactly this study; spaces around a number do not count."""
    uid = study.get("StudyInstanceUID", "")
    if row.kind == STUDY_UID:
        return uid == row.value
    accession = study.get("AccessionNumber", "")
    return is_uid(uid) and accession.strip(" ") == row.value.strip(" ")
