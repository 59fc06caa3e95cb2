"""Rows of the audit as text: for people, as JSON lines, as CSV, as DICOM messages."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from hilum.audit.message import AuditSource, message
from hilum.store.audit.log import audit_rows
from hilum.timestamps import iso

Row = Mapping[str, Any]
_COLUMNS: Final = tuple(audit_rows().selected_columns.keys())


def text_lines(rows: Iterable[Row], _source: AuditSource) -> Iterator[str]:
    """Yield lines of 80 columns, but for long names: actor and action, then details."""
    for row in rows:
        count = f" x{row['count']}" if row["count"] != 1 else ""
        place = f"{row['channel']}{' from ' + row['address'] if row['address'] else ''}"
        yield (
            f"{iso(row['at'])[:19]}Z {row['verb']:18} {row['outcome']:7} {row['actor']}"
            f" ({place}){count}"
        )
        about = [
            f"study {row['study_instance_uid']}" if row["study_instance_uid"] else "",
            _thing(row),
            row["detail"] or "",
        ]
        if said := ", ".join(filter(None, about)):
            yield f"    {said}"


def _thing(row: Row) -> str:
    return f"{row['thing'].replace('_', ' ')} {row['name']}" if row["thing"] else ""


def json_lines(rows: Iterable[Row], _source: AuditSource) -> Iterator[str]:
    """One object a line."""
    for row in rows:
        yield json.dumps({**row, "at": iso(row["at"])}, ensure_ascii=False)


def csv_lines(rows: Iterable[Row], _source: AuditSource) -> Iterator[str]:
    """With a line of names first (RFC 4180, lines end as the terminal's).

    Nothing in it begins a formula of a spreadsheet.
    """
    yield ",".join(_COLUMNS)
    for row in rows:
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow(
            _cell({**row, "at": iso(row["at"])}[name]) for name in _COLUMNS
        )
        yield out.getvalue()


def _cell(value: object) -> object:
    return (
        f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value
    )


def dicom_lines(rows: Iterable[Row], source: AuditSource) -> Iterator[str]:
    """One XML document of PS3.15 A.5 a line."""
    for row in rows:
        yield message(row, source).decode()


FORMATS: Final[Mapping[str, Callable[[Iterable[Row], AuditSource], Iterator[str]]]] = {
    "text": text_lines,
    "json": json_lines,
    "csv": csv_lines,
    "dicom": dicom_lines,
}
