"""Reads the files of labels: CSV, also compressed with gzip, and lists of names."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError
from hilum.evaluate.protocol.protocol import Protocol, ProtocolFile

Row = dict[str, str]
_DELIMITERS: Final = (",", ";", "\t")
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class LabelRows:
    """One file. `header`: none of a list of names, whose rows have the column `name`."""

    path: Path
    header: tuple[str, ...]
    rows: list[Row]


def read_table(path: Path) -> LabelRows:
    """Return all rows as text, without a column that has no name.

    Raises ConfigurationError, and OSError.
    """
    text = _text(path)
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    if not first.strip():
        raise ConfigurationError([f"{path}: it is empty"])
    if not first.count(delimiter):
        return LabelRows(path, (), _names(text))
    return _csv_table(path, text, delimiter)


def _csv_table(path: Path, text: str, delimiter: str) -> LabelRows:
    records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = _header(path, next(records))
        rows = _rows(path, header, records)
        return LabelRows(path, tuple(filter(None, header)), rows)
    except csv.Error as error:
        raise ConfigurationError(
            [f"{path}: row {records.line_num} is no CSV: a quote is not closed, or is in a value"]
        ) from error


def _header(path: Path, cells: Sequence[str]) -> tuple[str, ...]:
    header = tuple(cell.strip() for cell in cells)
    if len(set(header)) < len(header):
        raise ConfigurationError([f"{path}: two columns have one name; rename one"])
    return header


def _names(text: str) -> list[Row]:
    return [{"name": line.strip()} for line in text.splitlines() if line.strip()]


def assign_roles(protocol: Protocol, paths: Sequence[Path]) -> dict[str, LabelRows]:
    """Return the files by role. Raises ConfigurationError for a file that has no role, or two."""
    found: dict[str, LabelRows] = {}
    problems = []
    for path in paths:
        table = read_table(path)
        role = _role(protocol, table)
        if role is None:
            problems.append(f"{path}: {_no_role(protocol, table)}")
        elif role in found:
            problems.append(f"{path}: {found[role].path} is already the file of {role}; give one")
        else:
            found[role] = table
    if problems:
        raise ConfigurationError(problems)
    return found


def file_of(protocol: Protocol, role: str) -> ProtocolFile | None:
    """Return the protocol's facts of a file; None: it has none with this role."""
    return next((item for item in protocol.files if item.role == role), None)


def named_file(item: ProtocolFile) -> str:
    """Return the name of a file with its columns, for messages."""
    columns = ", ".join(item.columns)
    return f"{item.file} (columns {columns})" if columns else f"{item.file} (a name a line)"


def _role(protocol: Protocol, table: LabelRows) -> str | None:
    for item in protocol.files:
        is_list = not item.columns
        if is_list != (not table.header):
            continue
        if set(item.columns) <= set(table.header):
            return item.role
    return None


def _no_role(protocol: Protocol, table: LabelRows) -> str:
    has = ", ".join(table.header[:_SHOWN]) or "no header, a name a line"
    more = ", …" if len(table.header) > _SHOWN else ""
    wanted = "; ".join(named_file(item) for item in protocol.files)
    return f"{protocol.name} has no such file. It has {has}{more}. Wanted: {wanted}"


def _text(path: Path) -> str:
    packed = path.read_bytes()
    try:
        content = gzip.decompress(packed) if path.suffix == ".gz" else packed
        return content.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigurationError([f"{path}: it is no whole gzip file"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            [f"{path}: it is no UTF-8 text; save it as 'CSV UTF-8'"]
        ) from error


def _rows(path: Path, header: tuple[str, ...], records: Iterable[list[str]]) -> list[Row]:
    rows: list[Row] = []
    for cells in records:
        if not any(cells):
            continue
        if len(cells) > len(header):
            raise ConfigurationError(
                [f"{path}: row {len(rows) + 2} has more cells than the header: quote such a value"]
            )
        padded = cells + [""] * (len(header) - len(cells))
        rows.append({name: cell for name, cell in zip(header, padded, strict=True) if name})
    return rows
