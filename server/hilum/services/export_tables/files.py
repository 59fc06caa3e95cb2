"""The files of an export: complete under their names, or not there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol, TextIO

from hilum.errors import ConfigurationError
from hilum.services.export_tables.columns import Cell, ExportTable, columns_of
from hilum.services.export_tables.csv_table import CsvWriter
from hilum.services.export_tables.parquet_table import ParquetWriter

PARQUET: Final = ".parquet"
CSV: Final = ".csv"
_STDOUT: Final = 1


class RowWriter(Protocol):
    """The writer of one table in one format. Each method but `close` raises OSError."""

    def write(self, row: Mapping[str, Cell]) -> None:
        """Take one row."""

    def finish(self) -> None:
        """Write everything."""

    def close(self) -> None:
        """Give everything back, also after an error."""


class TableFile:
    """A table on its way to `path`, in a file beside it. None: standard output.

    Its errors name the path.
    """

    def __init__(self, path: Path | None, part: Path | None, writer: RowWriter) -> None:
        self._path = path
        self._part = part
        self._writer = writer

    def write(self, row: Mapping[str, Cell]) -> None:
        """Take one row. Raises OSError."""
        with _named(self._path):
            self._writer.write(row)

    def finish(self) -> None:
        """Make all rows durable, without the final name. Raises OSError."""
        with _named(self._path):
            self._writer.finish()
            if self._part is not None:
                _sync(self._part)

    def publish(self) -> None:
        """Give the file its name. Raises OSError."""
        if self._part is not None and self._path is not None:
            self._part.replace(self._path)
            _sync(self._path.parent)

    def discard(self) -> None:
        """Remove everything that has no name yet."""
        self._writer.close()
        if self._part is not None:
            self._part.unlink(missing_ok=True)


def not_read_path(path: Path) -> Path:
    """`results.csv` → `results.not_read.csv`."""
    return path.with_name(f"{path.stem}.not_read{path.suffix}")


def require_format(path: Path) -> None:
    """Raise ConfigurationError for a name that is neither CSV nor Parquet.

    Raises ModuleNotFoundError where the extra for Parquet is missing.
    """
    if path.suffix not in (CSV, PARQUET):
        raise ConfigurationError(
            [f"{path}: the name says the format; let it end in {CSV} or {PARQUET}, or give -"]
        )
    if path.suffix == PARQUET:
        import duckdb  # noqa: F401, PLC0415 - of an extra


def require_free(path: Path) -> None:
    """Raise ConfigurationError where a file would be replaced."""
    if path.exists():
        raise ConfigurationError([f"{path}: is there already; give another name, or --force"])


def open_table(path: Path | None, table: ExportTable, *, has_identifiers: bool) -> TableFile:
    """Return a new table at `path`; None: CSV on standard output. Raises OSError."""
    columns = columns_of(table, has_identifiers=has_identifiers)
    with _named(path):
        if path is None:
            stream = open(  # noqa: SIM115 - the writer closes it
                _STDOUT, "w", encoding="utf-8", newline="", closefd=False
            )
            return TableFile(None, None, CsvWriter(stream, columns))
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        if path.suffix == PARQUET:
            return TableFile(path, part, ParquetWriter(part, table, columns))
        return TableFile(path, part, CsvWriter(_opened(part), columns))


def _opened(part: Path) -> TextIO:
    return part.open("x", encoding="utf-8", newline="")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(path: Path | None) -> Iterator[None]:
    """Name the file in an error of a write, which names none."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
