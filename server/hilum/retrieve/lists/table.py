"""The rows of a list as text, whichever format the file has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["accession", "study_uid"]

_HEADERS: Final[dict[str, Kind]] = {
    "accession": "accession",
    "accessionnumber": "accession",
    "studyinstanceuid": "study_uid",
    "studyuid": "study_uid",
}


class ListError(Exception):
    """A list that cannot be read at all. `detail` holds the remedy, and no identifier."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row. `number`: as a spreadsheet counts, the header is row 1.

    `value`: of the column of studies. `is_blank`: so are all its cells. `problem`: why the value
    cannot be trusted, empty: it can.
    """

    number: int
    value: str
    is_blank: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StudyColumn:
    """The column of studies in a file.

    `column`: its header, empty without one. `rows`: may be called once for each pass. `doubts`:
    reasons why the values may not be those that were meant.
    """

    column: str
    rows: Callable[[], Iterator[TableRow]]
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChosenColumn:
    """The column that holds the studies. `is_headed`: row 1 is its header, not a value."""

    index: int
    name: str
    is_headed: bool = True


def kind_of(header: str) -> Kind | None:
    """Return the kind that a header names; None: it is no known one."""
    return _HEADERS.get(_plain(header))


def choose_column(headers: list[str], wanted: str | None) -> ChosenColumn:
    """Return the column by its given name, by a known header, or because it is the only one.

    A single cell without a known header that holds a digit is a value: a list without a header.
    Raises ListError.
    """
    if wanted is not None:
        return _named(headers, wanted)
    known = [index for index, header in enumerate(headers) if kind_of(header)]
    if len(known) == 1:
        return ChosenColumn(known[0], headers[known[0]])
    if known:
        raise ListError(
            f"the list has {len(known)} columns that may name studies ({_shown(headers)}); say"
            " which by --column"
        )
    if len(headers) == 1:
        return ChosenColumn(0, headers[0], is_headed=not any(map(str.isdigit, headers[0])))
    raise ListError(
        "no column is named accession_number or study_instance_uid; name one by --column"
        f" ({_shown(headers)})"
    )


def _named(headers: list[str], wanted: str) -> ChosenColumn:
    for match in (str, _plain):
        found = [index for index, header in enumerate(headers) if match(header) == match(wanted)]
        if len(found) == 1:
            return ChosenColumn(found[0], headers[found[0]])
        if found:
            raise ListError(f"{len(found)} columns are named {wanted!r}; rename all but one")
    raise ListError(f"no column is named {wanted!r} ({_shown(headers)})")


def _shown(headers: list[str]) -> str:
    # A first row with digits may be a row of values: those are not shown.
    named = [header for header in headers if header and not any(map(str.isdigit, header))]
    return f"it has: {', '.join(named)}" if named else "row 1 holds no names"


def _plain(header: str) -> str:
    return "".join(letter for letter in header.casefold() if letter.isalnum())
