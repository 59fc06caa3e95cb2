"""Objects in their places that no row names.

Of images that came after the backup whose ledger was restored beside a newer archive.

Bounded memory, however many rows: what they name is read once, into a file of this process alone.
Of the archive only names are read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from sqlalchemy import Engine, select

from hilum.store.archive.archive import Archive, place_of, place_of_quarantined
from hilum.store.database.engines import open_reader
from hilum.store.schema.tables import conflict, expired_file, instance

_ROWS = 5000
_NAMED = (instance, expired_file, conflict)


def orphans(url: str, archive: Archive) -> list[Path]:
    """Objects without a row, in the order in which they came.

    Not those in quarantine, which are for a person.

    One that gets its row meanwhile may be among them: recorded again, it is known.
    """
    with contextlib.closing(
        sqlite3.connect("")
    ) as known:  # on the disk, where SQLite has its temporary files, and deleted with it
        known.execute("CREATE TABLE named (path TEXT PRIMARY KEY) WITHOUT ROWID")
        reader = open_reader(url)
        try:
            for paths in _named(reader):
                known.executemany(
                    "INSERT OR IGNORE INTO named VALUES (?)", ((path,) for path in paths)
                )
        finally:
            reader.dispose()
        arriving = {file.name for file in archive.unindexed()}
        found = [
            file
            for file in archive.placed()
            if file.name not in arriving and not _is_in(known, place_of(file))
        ]
    return sorted(found, key=lambda file: file.name[4:])


def _named(reader: Engine) -> Iterator[Iterable[str]]:
    """All places that rows name, some thousand at a time.

    Those of images whose pixels have left, too: a crash may have left a file.
    """
    for table in _NAMED:
        last = 0
        query = select(table.c.id, table.c.path).order_by(table.c.id).limit(_ROWS)
        while True:
            with reader.connect() as connection:
                rows = connection.execute(query.where(table.c.id > last)).all()
            if not rows:
                break
            yield (place_of_quarantined(row.path) for row in rows)
            last = rows[-1].id


def _is_in(known: sqlite3.Connection, path: str) -> bool:
    return known.execute("SELECT 1 FROM named WHERE path = ?", (path,)).fetchone() is not None
