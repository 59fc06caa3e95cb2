"""Backup of a running installation: a snapshot of the ledger first, then the files that it names.

Files never change, and no row comes to name a file that was not there before. So the copy is whole:
it is the state folder of an installation that stood still when the backup began. To restore it,
start on it. The snapshot gets its name last: a backup that is cut off leaves an earlier one of the
same folder as it was.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Literal

from sqlalchemy import (
    Connection,
    Engine,
    column,
    create_engine,
    delete,
    inspect,
    select,
    table,
    update,
)
from sqlalchemy.engine import make_url

from hilum.domain import WorkState
from hilum.errors import ConfigurationError
from hilum.store.archive.archive import Archive, place_of
from hilum.store.database.engines import open_engine, open_reader
from hilum.store.installation import epoch
from hilum.store.schema.tables import (
    WORK_TABLES,
    destination,
    expired_file,
    installation,
    instance,
    process,
)

Put = Literal["linked", "copied", "known", "missing"]
_LEDGER = "ledger.sqlite"
_ARCHIVE = "archive"
_FOLDER = "unindexed/backup"
_LOGS = ("-wal", "-shm")


def back_up(url: str, archive: Archive, target: Path) -> Counter[Put]:
    """Write a backup into a folder, new or of an earlier backup, and count its files.

    `linked`: a second name on the same file system. `known`: there from an earlier backup.
    `missing`: named by the ledger, but not in the archive. A ledger on PostgreSQL is not copied:
    dump it before this. The ledger of an earlier backup is replaced when all files are there. A
    ledger of an earlier version is copied as it is; the columns read here are the same in all
    versions. Of an object store only this host's spool is copied.

    Raises ConfigurationError, OSError.
    """
    _refuse_live(url, archive, target)
    _refuse_shared(target)
    target.mkdir(0o700, parents=True, exist_ok=True)
    (target / _ARCHIVE / "locks").mkdir(parents=True, exist_ok=True)
    arriving = list(archive.unindexed())
    snapshot = (
        (target / _LEDGER).with_suffix(".part")
        if make_url(url).get_backend_name() == "sqlite"
        else None
    )
    if snapshot is not None:
        _snapshot(url, snapshot)
    reader = open_reader(url if snapshot is None else f"sqlite:///{snapshot}")
    try:
        put, arrived = _put_all(archive, arriving, reader, target)
        if snapshot is None and not archive.is_remote:
            put += Counter(_put_left(archive, reader, target))
    finally:
        reader.dispose()
    os.sync()
    if snapshot is not None:
        _replace(target / _LEDGER, snapshot)
    # Only now: the earlier ledger had no rows for them, so a crash would have lost them.
    _forget_others(target, arrived)
    os.sync()
    return put


def _put_all(
    archive: Archive, arriving: list[Path], reader: Engine, target: Path
) -> tuple[Counter[Put], dict[str, Put]]:
    """Copy the files that rows name, those in quarantine, and those that wait for their rows.

    Returns the counts, and the last ones by name.
    """
    put = Counter[Put]()
    if not archive.is_remote:  # an object store is backed up by its own means
        put += Counter(_put(archive, path, target / _ARCHIVE / path) for path in _named(reader))
        put += Counter(_put_quarantined(archive, target))
    arrived = dict(_put_arriving(archive, arriving, reader, target))
    return put + Counter(arrived.values()), arrived


def has_images(url: str) -> bool:
    """Whether the ledger has ever recorded an image."""
    reader = open_reader(url)
    try:
        with reader.connect() as connection:
            return connection.execute(select(instance.c.id).limit(1)).first() is not None
    finally:
        reader.dispose()


def _refuse_live(url: str, archive: Archive, target: Path) -> None:
    """Refuse a target inside the running installation, also where links lead there."""
    root = archive.root.resolve()
    wanted = target.resolve()
    within = {wanted, *wanted.parents, (target / _ARCHIVE).resolve()}
    if within & {root, root.parent, archive.root.parent.resolve()}:
        raise ConfigurationError(
            [f"{target}: lies in the state folder itself; give a folder elsewhere."]
        )
    if _would_write(target, url):
        raise ConfigurationError(
            [f"{target}: holds the ledger that is in use (ledger.url); give a folder elsewhere."]
        )


def _would_write(target: Path, url: str) -> bool:
    """Whether the ledger at `url` is a file that the backup writes."""
    parsed = make_url(url)
    ledger = target / _LEDGER
    written = {ledger.resolve(), ledger.with_suffix(".part").resolve()}
    return (
        parsed.get_backend_name() == "sqlite" and Path(parsed.database or "").resolve() in written
    )


def _refuse_shared(target: Path) -> None:
    """Refuse a target that another account may write to.

    Its links could make the copy overwrite our own files.
    """
    if not target.exists():
        return
    status = target.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        problem = f"{target}: other accounts may write there, and so lead the copy elsewhere"
        raise ConfigurationError(
            [f"{problem}; give a folder of this user's, as `install -d -m 0700` makes it."]
        )


def _snapshot(url: str, file: Path) -> None:
    """Write one state of the ledger while others write, without the free pages.

    Free pages may still hold deleted rows.
    """
    _remove(file)
    engine = open_engine(url, read_only=True)
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("VACUUM INTO ?", (str(file),))
    finally:
        connection.close()
        engine.dispose()
    _stand_still(file)


def _replace(file: Path, snapshot: Path) -> None:
    """Replace the file at once. Its logs are empty, because nothing was written through them."""
    for log in _LOGS:
        snapshot.with_name(snapshot.name + log).unlink(missing_ok=True)
        file.with_name(file.name + log).unlink(missing_ok=True)
    snapshot.rename(file)
    os.sync()


def _remove(file: Path) -> None:
    for end in ("", *_LOGS):
        file.with_name(file.name + end).unlink(missing_ok=True)


def _stand_still(file: Path) -> None:
    """Remove leases and heartbeats from the copy: no process works on it.

    Leases are given back uncounted, so that a restored server need not wait for them to lapse.
    """
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        _release_leases(connection)
        connection.execute(update(destination).values(owner=None, owned_until=None))
        connection.execute(delete(process))
        # A server that starts on this copy must never mint a UID that another has minted for other
        # bytes.
        connection.execute(delete(installation).where(installation.c.key == epoch.KEY))
    engine.dispose()


def _release_leases(connection: Connection) -> None:
    """Make leased rows due. An earlier version had fewer tables, and fewer columns."""
    given_back = {"state": WorkState.DUE, "lease_token": None, "leased_until": None}
    known = inspect(connection).get_table_names()
    for name in WORK_TABLES.keys() & known:
        held = table(name, *map(column, ("state", "attempts", "lease_token", "leased_until")))
        values = {**given_back, "attempts": held.c.attempts - 1}
        connection.execute(update(held).where(held.c.state == WorkState.LEASED).values(values))


def _named(reader: Engine) -> Iterator[str]:
    """Yield the paths of all images that have pixels, read some thousand at a time."""
    last = 0
    query = (
        select(instance.c.id, instance.c.path)
        .where(instance.c.pixels_removed_at.is_(None))
        .order_by(instance.c.id)
        .limit(5000)
    )
    while True:
        with reader.connect() as connection:
            rows = connection.execute(query.where(instance.c.id > last)).all()
        if not rows:
            return
        yield from (row.path for row in rows)
        last = rows[-1].id


def _put_quarantined(archive: Archive, target: Path) -> Iterator[Put]:
    for file in archive.quarantined():
        path = file.relative_to(archive.root)
        yield _put(archive, str(path), target / _ARCHIVE / path)


def _put_arriving(
    archive: Archive, arriving: list[Path], reader: Engine, target: Path
) -> Iterator[tuple[str, Put]]:
    """Copy objects that were acknowledged before the snapshot and have no row in it, by name.

    The restored server finds and records them at its start.
    """
    for file in arriving:
        with reader.connect() as connection:
            if (
                connection.execute(
                    select(instance.c.id).where(instance.c.path == place_of(file))
                ).first()
                is None
            ):
                put = _put(archive, place_of(file), target / _ARCHIVE / _FOLDER / file.name)
                if put != "missing":  # else it was a duplicate, and its bytes are kept elsewhere
                    yield file.name, put


def _put_left(archive: Archive, reader: Engine, target: Path) -> Iterator[Put]:
    """Copy files that no row names any more and that are still there.

    Rows of a dump that was made before a header was corrected may name them.
    """
    with reader.connect() as connection:
        paths = (
            connection.execute(select(expired_file.c.path).where(expired_file.c.cause != "erased"))
            .scalars()
            .all()
        )
    puts = (_put(archive, path, target / _ARCHIVE / path) for path in paths)
    yield from (put for put in puts if put != "missing")  # deleted meanwhile


def _forget_others(target: Path, arrived: Container[str]) -> None:
    """Delete unindexed objects that an earlier backup put there and that have a row by now.

    Their headers may be older than the row's. Recorded again, they would pass for the newest.
    """
    for file in (target / _ARCHIVE / _FOLDER).glob("*.dcm"):
        if file.name not in arrived:
            file.unlink()


def _put(archive: Archive, path: str, target: Path) -> Put:
    """Copy a file under its name into the backup: complete, or not at all."""
    for _ in range(3):  # it may be moved between the look and the link
        try:
            file = archive.arrived(path) if archive.is_remote else archive.locate(path)
            return _link_or_copy(file, target)
        except FileNotFoundError:
            continue
    return "missing"


def _link_or_copy(file: Path, target: Path) -> Put:
    if target.exists() and target.stat().st_size == file.stat().st_size:
        return "known"
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    try:
        part.hardlink_to(file)
        how: Put = "linked"
    except FileNotFoundError:
        raise
    except OSError:  # another file system
        shutil.copyfile(file, part)
        how = "copied"
    part.rename(target)
    return how
