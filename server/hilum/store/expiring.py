"""Files that no row names any more: written down with the change of their row, deleted after its commit, forgotten after that.

A crash in between leaves a row here, never a file that nobody knows and never a row whose file is gone too early.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, and_, delete, insert, select, update
from sqlalchemy.engine import Row

from hilum.store.archive import Archive
from hilum.store.schema import expired_file, instance

_AGAIN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Removed:
    """A file that was deleted; `cause` is superseded, age, pressure or erased. `problem`: why it is still there."""

    path: str
    cause: str
    size_bytes: int
    problem: str | None = None


def expire(connection: Connection, path: str, cause: str, due_at: float, instance_id: int | None) -> None:
    """The file may be deleted from `due_at` on; `instance_id` is the image that it belonged to."""
    connection.execute(insert(expired_file).values(path=path, cause=cause, due_at=due_at, instance_id=instance_id))


def keep(connection: Connection, path: str) -> None:
    """A row names the file again."""
    connection.execute(delete(expired_file).where(expired_file.c.path == path))


def hasten(connection: Connection, instance_id: int, now: float) -> None:
    """Whatever was left of this image may be deleted now."""
    connection.execute(update(expired_file).where(expired_file.c.instance_id == instance_id).values(due_at=now, cause="erased"))


def remove_due(connection: Connection, archive: Archive, now: float, limit: int) -> list[Removed]:
    """Delete files whose time has come and forget them. One that cannot be deleted is tried again in an hour."""
    query = select(expired_file).where(expired_file.c.due_at <= now).order_by(expired_file.c.due_at, expired_file.c.id).limit(limit)
    rows = connection.execute(query.with_for_update(skip_locked=True)).all()
    removed = [_remove(archive, row) for row in rows if not _is_named(connection, row)]
    stuck = {item.path for item in removed if item.problem is not None}
    for row in rows:
        of_row = expired_file.c.id == row.id
        later = update(expired_file).where(of_row).values(due_at=now + _AGAIN_SECONDS)
        connection.execute(later if row.path in stuck else delete(expired_file).where(of_row))
    return removed


def _is_named(connection: Connection, row: Row[tuple[object, ...]]) -> bool:
    """Whether the image has this very file again: its pixels were sent once more."""
    same = and_(instance.c.id == row.instance_id, instance.c.path == row.path, instance.c.pixels_removed_at.is_(None))
    return connection.execute(select(instance.c.id).where(same)).first() is not None


def _remove(archive: Archive, row: Row[tuple[object, ...]]) -> Removed:
    try:
        return Removed(row.path, row.cause, archive.remove(row.path))
    except OSError as error:
        return Removed(row.path, row.cause, 0, error.strerror or type(error).__name__)
