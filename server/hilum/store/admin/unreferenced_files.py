"""Objects in their places that no row names.

They exist where an older ledger was restored beside a newer archive. Memory is bounded, however
many rows there are: the paths that rows name are read once, into a file of this process alone. Only
the names in the archive are read.
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
    """Objects without a row, oldest first.

    Objects in quarantine are left out: they are for a person. An object that gets its row meanwhile
    may be among them: recorded again, it is known.
    """
    # On the disk, where SQLite has its temporary files.
    with contextlib.closing(sqlite3.connect("")) as known:
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
    """Yield all paths that rows name, some thousand at a time.

    Paths of images without pixels are among them, because a crash may have left the file.
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
