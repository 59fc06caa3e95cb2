"""Files that no row names any more.

Written down with the change of their row, deleted after its commit, forgotten after that. A crash
in between leaves a row here. It never leaves an unknown file, nor a row whose file is gone too
early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, and_, delete, insert, select, update
from sqlalchemy.engine import Row

from hilum.store.archive.archive import Archive
from hilum.store.schema.tables import expired_file, instance

_AGAIN_SECONDS = 3600.0
_TOGETHER = 50  # files of one transaction: others wait for the ledger meanwhile, 0.1 ms for each


@dataclass(frozen=True, slots=True)
class Removed:
    """A file that was deleted; `cause` is superseded, age, pressure or erased.

    `problem`: why it is still there.
    """

    path: str
    cause: str
    size_bytes: int
    problem: str | None = None


def expire(
    connection: Connection, path: str, cause: str, due_at: float, instance_id: int | None
) -> None:
    """Let the file be deleted from `due_at` on; `instance_id` is the image that it belonged to."""
    connection.execute(
        insert(expired_file).values(path=path, cause=cause, due_at=due_at, instance_id=instance_id)
    )


def keep(connection: Connection, path: str) -> None:
    """Keep a file: a row names it again."""
    connection.execute(delete(expired_file).where(expired_file.c.path == path))


def hasten(connection: Connection, instance_id: int, now: float) -> None:
    """Let all files of this image be deleted now."""
    connection.execute(
        update(expired_file)
        .where(expired_file.c.instance_id == instance_id)
        .values(due_at=now, cause="erased")
    )


def remove_due(
    engine: Engine, archive: Archive, now: float, sync: Callable[[], None]
) -> list[Removed]:
    """Delete files that are due, some at a time, and forget their rows.

    A file that cannot be deleted is tried again in an hour. `sync` makes commits durable: a power
    cut must not bring back a row whose file is gone. Names are deleted in a transaction, space is
    freed after it, so that writers do not wait for the file system. On return the deletion is
    durable, as the caller of an erasure is promised. Raises OSError when it may not be; then the
    rows stay for the next time.
    """
    with ExitStack() as held, engine.begin() as connection:
        removed = _remove_due(connection, archive, now, sync, held)
    gone = {number: item for number, item in removed.items() if item.problem is None}
    archive.sync_names(item.path for item in gone.values())
    if gone:
        with engine.begin() as connection:
            connection.execute(delete(expired_file).where(expired_file.c.id.in_(list(gone))))
    return list(removed.values())


def _remove_due(
    connection: Connection, archive: Archive, now: float, sync: Callable[[], None], held: ExitStack
) -> dict[int, Removed]:
    """Delete one batch, and return the results by row id."""
    if not (rows := _due_files(connection, now)):
        return {}
    sync()
    named = _named(connection, rows)
    removed = _remove(archive, [row for row in rows if row.id not in named], held)
    stuck = [number for number, item in removed.items() if item.problem is not None]
    connection.execute(delete(expired_file).where(expired_file.c.id.in_(named)))
    connection.execute(
        update(expired_file).where(expired_file.c.id.in_(stuck)).values(due_at=now + _AGAIN_SECONDS)
    )
    return removed


def _due_files(connection: Connection, now: float) -> Sequence[Row[tuple[object, ...]]]:
    query = (
        select(expired_file)
        .where(expired_file.c.due_at <= now)
        .order_by(expired_file.c.due_at, expired_file.c.id)
        .limit(_TOGETHER)
    )
    return connection.execute(query.with_for_update(skip_locked=True)).all()


def _named(connection: Connection, rows: Sequence[Row[tuple[object, ...]]]) -> set[int]:
    """Rows whose image has this very file again: its pixels were sent once more."""
    same = and_(
        instance.c.id == expired_file.c.instance_id,
        instance.c.path == expired_file.c.path,
        instance.c.pixels_removed_at.is_(None),
    )
    query = (
        select(expired_file.c.id)
        .join(instance, same)
        .where(expired_file.c.id.in_([row.id for row in rows]))
    )
    return set(connection.execute(query).scalars())


def _remove(
    archive: Archive, rows: Sequence[Row[tuple[object, ...]]], held: ExitStack
) -> dict[int, Removed]:
    found = archive.remove_all([row.path for row in rows], held)
    return {row.id: _removed(row, found[row.path]) for row in rows}


def _removed(row: Row[tuple[object, ...]], found: int | OSError) -> Removed:
    if isinstance(found, OSError):
        return Removed(row.path, row.cause, 0, found.strerror or type(found).__name__)
    return Removed(row.path, row.cause, found)
