"""Lists as CSV: UTF-8, with commas, semicolons or tabs, quotes, and any ends of line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hilum.retrieve.lists.table import ChosenColumn, ListError, StudyColumn, TableRow, choose_column

_DELIMITERS: Final = (",", ";", "\t")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_SAVE: Final = "save it as 'CSV UTF-8'"
_HEADLESS: Final = (
    "row 1 holds a digit and no known header, so it is taken as a study; if it is the header, name"
    " it by --column"
)
_WORKBOOKS: Final = {
    b"PK\x03\x04": "an Excel or OpenDocument workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\x1f\x8b": "compressed",
}


def open_csv(path: Path, column: str | None) -> StudyColumn:
    """Return the column of studies of a CSV file. Raises ListError."""
    _require_text(path)
    delimiter = _delimiter(path)
    headers = next((cells for _, cells in _records(path, delimiter)), None)
    if headers is None:
        raise ListError("the list is empty")
    chosen = choose_column([header.strip() for header in headers], column)
    doubts = () if chosen.is_headed else (_HEADLESS,)
    return StudyColumn(
        chosen.name if chosen.is_headed else "",
        lambda: _rows(path, delimiter, chosen, len(headers)),
        doubts,
    )


def _rows(path: Path, delimiter: str, chosen: ChosenColumn, width: int) -> Iterator[TableRow]:
    records = _records(path, delimiter)
    if chosen.is_headed:
        next(records)
    for number, cells in records:
        value = cells[chosen.index] if chosen.index < len(cells) else ""
        is_blank = not any(cell.strip() for cell in cells)
        problem = ""
        if any(cell.strip() for cell in cells[width:]):
            problem = "the row has more cells than the header: quote a value that holds a delimiter"
        yield TableRow(number, value, is_blank, problem)


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Return the cells of each row, from the header on, and its number."""
    number = 0
    is_begun = False
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if _separator_line(file.readline()) is None:
                file.seek(0)
            for cells in csv.reader(file, delimiter=delimiter, strict=True):
                number += 1
                is_begun = is_begun or any(cell.strip() for cell in cells)
                if is_begun:
                    yield number, cells
    except UnicodeDecodeError as error:
        raise ListError(f"line {_bad_line(path)} is not UTF-8; {_SAVE}") from error
    except csv.Error as error:
        raise ListError(
            f"row {number + 1} is not CSV: a quote is not closed, or stands inside a value"
        ) from error


def _require_text(path: Path) -> None:
    with path.open("rb") as file:
        beginning = file.read(4096)
    if not beginning:
        raise ListError("the list is empty")
    if beginning.startswith(_UTF16) or b"\0" in beginning[:64]:
        raise ListError(
            f"the list is UTF-16, as Excel writes it for 'Unicode text', and not UTF-8; {_SAVE}"
        )
    for magic, name in _WORKBOOKS.items():
        if beginning.startswith(magic):
            raise ListError(f"the file is {name}, and not CSV or Parquet; {_SAVE}")


def _delimiter(path: Path) -> str:
    """Return the delimiter that the first row has most of, outside quotes."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            while first and not first.strip():
                first = file.readline()
    except UnicodeDecodeError as error:
        raise ListError(f"line {_bad_line(path)} is not UTF-8; {_SAVE}") from error
    if (separator := _separator_line(first)) is not None:
        return separator
    plain = re.sub(r'"[^"]*"', "", first)
    return max(_DELIMITERS, key=plain.count)


def _separator_line(line: str) -> str | None:
    """Return the delimiter that Excel's first line `sep=;` names; None: it is no such line."""
    found = re.fullmatch(r"sep=([,;\t])\r?\n?", line)
    return None if found is None else found[1]


def _bad_line(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1
