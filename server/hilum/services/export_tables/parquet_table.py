"""A table as Parquet, with a type for each column and NULL for no value.

duckdb writes it from a compressed CSV that has no name: the rows pass through it one by one, so
that the memory does not depend on their number.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hilum.services.export_tables.columns import (
    FORMAT_VERSION,
    Cell,
    ColumnType,
    ExportColumn,
    ExportTable,
)
from hilum.services.export_tables.csv_table import CsvWriter

_TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.TEXT: "VARCHAR",
    ColumnType.INTEGER: "BIGINT",
    ColumnType.NUMBER: "DOUBLE",
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.MOMENT: "TIMESTAMPTZ",
    ColumnType.DAY: "DATE",
}
_LONGEST_LINE_BYTES: Final = 4 << 20
_BUFFER_BYTES: Final = 16 << 20
# Nothing is fetched from outside, nothing is spilled into the working folder.
_CONFIGURATION: Final[Mapping[str, str | bool | int]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "threads": 1,
    "memory_limit": "512MB",
    "temp_directory": "",
}


class ParquetWriter:
    """Rows of one table for a Parquet file at `path`, which `finish` writes."""

    def __init__(self, path: Path, table: ExportTable, columns: Sequence[ExportColumn]) -> None:
        self._path = path
        self._table = table
        self._columns = columns
        self._file = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 - `close` ends it
        packed = gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=1)
        stream = io.TextIOWrapper(packed, encoding="utf-8", newline="")
        self._writer = CsvWriter(stream, columns, is_guarded=False)

    def write(self, row: Mapping[str, Cell]) -> None:
        """Take one row."""
        self._writer.write(row)

    def finish(self) -> None:
        """Write the file. Raises OSError."""
        self._writer.finish()  # ends the compression as well
        self._file.flush()
        _copy(f"/proc/self/fd/{self._file.fileno()}", self._path, self._statement())

    def close(self) -> None:
        """Remove the rows on the way; after `finish` or instead of it."""
        self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()

    def _statement(self) -> str:
        types = {item.name: _TYPES[item.type] for item in self._columns}
        read = (
            f"read_csv(?, columns = {types!r}, auto_detect = false, header = true, delim = ',',"
            " quote = '\"', escape = '\"', nullstr = '', new_line = '\\r\\n',"
            f" compression = 'gzip', max_line_size = {_LONGEST_LINE_BYTES},"
            f" buffer_size = {_BUFFER_BYTES})"
        )
        target = str(self._path).replace("'", "''")
        about = f"{{hilum_table: '{self._table}', format_version: '{FORMAT_VERSION}'}}"
        return (
            f"COPY (SELECT * FROM {read}) TO '{target}' (FORMAT parquet, COMPRESSION zstd,"  # noqa: S608 - our own names
            f" USE_TMP_FILE false, KV_METADATA {about})"
        )


def _copy(source: str, path: Path, statement: str) -> None:
    """Run the statement. An error's own words may repeat a row, and are left out."""
    import duckdb  # noqa: PLC0415 - of an extra

    try:
        with duckdb.connect(":memory:", config=dict(_CONFIGURATION)) as connection:
            connection.execute(statement, [source])
    except duckdb.Error as error:
        is_full = os.strerror(errno.ENOSPC) in str(error)
        number = errno.ENOSPC if is_full else errno.EIO
        words = os.strerror(number) if is_full else f"duckdb: {type(error).__name__}"
        raise OSError(number, words, str(path)) from None
