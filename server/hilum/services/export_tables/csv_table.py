"""A table as CSV: RFC 4180, UTF-8, no value as an empty field.

Each text stands in quotation marks, each number and truth value without them. A spreadsheet runs a
text that begins with one of `=+-@`, a tab or the end of a line as a formula. Such a text from
outside gets an apostrophe in front, also where it begins with apostrophes before one of these: so
`unguarded` gives back the original.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TextIO

from hilum.services.export_tables.columns import Cell, ExportColumn

_FORMULA: Final = re.compile("'*[=+@\t\r\n-]")
_END: Final = "\r\n"


class CsvWriter:
    """Rows of one table into a text stream that translates no line ends.

    `is_guarded`: texts from outside are kept from being formulas.
    """

    def __init__(
        self, stream: TextIO, columns: Sequence[ExportColumn], *, is_guarded: bool = True
    ) -> None:
        self._stream = stream
        self._columns = [(item.name, item.is_foreign and is_guarded) for item in columns]
        stream.write(",".join(item.name for item in columns) + _END)

    def write(self, row: Mapping[str, Cell]) -> None:
        """Write one row; columns that it does not name stay empty."""
        self._stream.write(",".join(self._fields(row)) + _END)

    def finish(self) -> None:
        """Write everything that is buffered, and close the stream. Raises OSError."""
        self._stream.close()

    def close(self) -> None:
        """Close the stream. Rows that cannot be written any more are lost."""
        with contextlib.suppress(OSError):
            self._stream.close()

    def _fields(self, row: Mapping[str, Cell]) -> Iterator[str]:
        for name, is_guarded in self._columns:
            yield field_of(row.get(name), is_guarded=is_guarded)


def field_of(value: Cell, *, is_guarded: bool) -> str:
    """Return one encoded field."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = guarded(value) if is_guarded else value
    return '"' + text.replace('"', '""') + '"'


def guarded(text: str) -> str:
    """Return a text that no spreadsheet runs as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """Return the text that `guarded` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
