"""Lists as Parquet, read by DuckDB, which is an extra."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hilum.missing_extra import in_words
from hilum.retrieve.lists.table import ListError, StudyColumn, TableRow, choose_column

if TYPE_CHECKING:
    import duckdb

MAGIC: Final = b"PAR1"
_INTEGERS: Final = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DECIMAL\([0-9]+,0\)")
_FLOATS: Final = ("FLOAT", "DOUBLE")
_ROWS_AT_ONCE: Final = 10_000
_EXACT: Final = 1 << 53
_DOUBT: Final = (
    "the column holds numbers: leading zeros are lost before Hilum sees them; write it as text"
)


def open_parquet(path: Path, column: str | None) -> StudyColumn:
    """Return the column of studies of a Parquet file. Raises ListError."""
    types = _types(path)
    chosen = choose_column(list(types), column)
    name = list(types)[chosen.index]
    kind = types[name]
    is_float = kind in _FLOATS
    is_number = is_float or _INTEGERS.fullmatch(kind) is not None
    if not is_number and kind != "VARCHAR" and not kind.startswith("ENUM"):
        raise ListError(f"the column {name!r} holds {kind}, and not text; write it as text")
    return StudyColumn(
        name,
        lambda: _rows(path, name, list(types), is_float=is_float),
        (_DOUBT,) if is_number else (),
    )


def _rows(path: Path, name: str, names: list[str], *, is_float: bool) -> Iterator[TableRow]:
    value = _quoted(name)
    wanted = value if is_float else f"CAST({value} AS VARCHAR)"
    blank = " AND ".join(f"{_quoted(each)} IS NULL" for each in names)
    number = 1
    with _connection() as connection:
        cursor = _run(connection, f"SELECT {wanted}, {blank} FROM read_parquet($path)", path)  # noqa: S608 - quoted names
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            for cell, is_blank in rows:
                number += 1
                yield _row(number, cell, is_blank=bool(is_blank))


def _row(number: int, cell: str | float | None, *, is_blank: bool) -> TableRow:
    if not isinstance(cell, float):
        return TableRow(number, cell or "", is_blank)
    if not cell.is_integer() or abs(cell) >= _EXACT:
        return TableRow(number, "", problem="a number that is no whole number, or not exact")
    return TableRow(number, str(int(cell)))


def _types(path: Path) -> dict[str, str]:
    with _connection() as connection:
        found = _run(connection, "DESCRIBE SELECT * FROM read_parquet($path)", path).fetchall()
    return {str(row[0]): str(row[1]) for row in found}


def _run(connection: duckdb.DuckDBPyConnection, sql: str, path: Path) -> duckdb.DuckDBPyConnection:
    import duckdb  # noqa: PLC0415 - of an extra

    try:
        return connection.execute(sql, {"path": glob.escape(str(path.absolute()))})
    except duckdb.Error as error:
        raise ListError("the file is no whole Parquet file; write it again") from error


def _connection() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise ListError(in_words(error)) from error
    # No extension is fetched from the network, and the cores are there for live images.
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "threads": 2,
    }
    return duckdb.connect(":memory:", config=settings)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
