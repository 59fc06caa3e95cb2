"""Reads a list of studies: each row is a study to ask for, or is refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.domain import ListRow, PlanDoubt, RowOutcome
from hilum.retrieve.lists.csv_table import open_csv
from hilum.retrieve.lists.list_doubts import AccessionForms
from hilum.retrieve.lists.parquet_table import MAGIC, open_parquet
from hilum.retrieve.lists.table import Kind, ListError, StudyTable, TableRow, kind_of
from hilum.retrieve.lists.values import problem_of_value
from hilum.retrieve.source import ListedStudy

_LIKE_UID: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3,}")


@dataclass(frozen=True, slots=True)
class StudyList:
    """The content of a list.

    `column`: its header, empty without one. `studies`: to ask for, each once. `refused`: rows that
    are refused or name the study of an earlier row. `blank_rows`: rows without anything.
    """

    column: str
    kind: Kind
    studies: tuple[ListedStudy, ...]
    refused: tuple[ListRow, ...]
    blank_rows: int
    doubts: tuple[PlanDoubt, ...]


def read_list(path: Path, column: str | None = None) -> StudyList:
    """Read a list as CSV or Parquet; Parquet is known by its first bytes.

    `column`: header of the column of studies; None: a known one, or the only one. Raises ListError,
    whose text holds no identifier.
    """
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(MAGIC)) == MAGIC
        table = open_parquet(path, column) if is_parquet else open_csv(path, column)
        return _read(table)
    except OSError as error:
        raise ListError(f"{path} cannot be read: {error.strerror}") from error


def _read(table: StudyTable) -> StudyList:
    kind = kind_of(table.column) or _kind_of_values(table.rows())
    studies: list[ListedStudy] = []
    refused: list[ListRow] = []
    first_rows: dict[str, int] = {}
    forms = AccessionForms()
    blank_rows = 0
    for row in table.rows():
        if row.is_blank:
            blank_rows += 1
            continue
        value = row.value.strip()
        if refusal := _refusal(row, value, kind, first_rows):
            refused.append(refusal)
            continue
        first_rows[value] = row.number
        studies.append(ListedStudy(row.number, kind, value))
        if kind == "accession":
            forms.count(value)
    doubts = tuple(PlanDoubt(text) for text in (*table.doubts, *forms.doubts()))
    return StudyList(table.column, kind, tuple(studies), tuple(refused), blank_rows, doubts)


def _refusal(row: TableRow, value: str, kind: Kind, first_rows: dict[str, int]) -> ListRow | None:
    if problem := row.problem or problem_of_value(value, kind):
        return ListRow(row.number, RowOutcome.REFUSED, problem)
    if (first := first_rows.get(value)) is not None:
        return ListRow(row.number, RowOutcome.DUPLICATE, f"the same as row {first}")
    return None


def _kind_of_values(rows: Iterator[TableRow]) -> Kind:
    """Return the kind of a column whose header does not say it, by its first value."""
    first = next((value for row in rows if (value := row.value.strip())), "")
    return "study_uid" if _LIKE_UID.fullmatch(first) else "accession"
