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
from hilum.retrieve.lists.table import Kind, ListError, StudyColumn, TableRow, kind_of
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


def _read(table: StudyColumn) -> StudyList:
    kind = kind_of(table.column) or _kind_of_values(table.rows())
    reader = _RowReader(kind)
    for row in table.rows():
        reader.read(row)
    doubts = (*table.doubts, *reader.forms.doubts())
    return StudyList(
        table.column,
        kind,
        tuple(reader.studies),
        tuple(reader.refused),
        reader.blank_rows,
        tuple(map(PlanDoubt, doubts)),
    )


class _RowReader:
    """Sorts rows into studies, refused ones and blank ones."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._first_rows: dict[str, int] = {}
        self.studies: list[ListedStudy] = []
        self.refused: list[ListRow] = []
        self.blank_rows = 0
        self.forms = AccessionForms()

    def read(self, row: TableRow) -> None:
        """Take the next row."""
        if row.is_blank:
            self.blank_rows += 1
            return
        value = row.value.strip()
        if refusal := self._refusal(row, value):
            self.refused.append(refusal)
            return
        self._first_rows[value] = row.number
        self.studies.append(ListedStudy(row.number, self._kind, value))
        if self._kind == "accession":
            self.forms.count(value)

    def _refusal(self, row: TableRow, value: str) -> ListRow | None:
        if problem := row.problem or problem_of_value(value, self._kind):
            return ListRow(row.number, RowOutcome.REFUSED, problem)
        if (first := self._first_rows.get(value)) is not None:
            return ListRow(row.number, RowOutcome.DUPLICATE, f"the same as row {first}")
        return None


def _kind_of_values(rows: Iterator[TableRow]) -> Kind:
    """Return the kind of a column whose header does not say it, by its first value."""
    first = next((value for row in rows if (value := row.value.strip())), "")
    return "study_uid" if _LIKE_UID.fullmatch(first) else "accession"
