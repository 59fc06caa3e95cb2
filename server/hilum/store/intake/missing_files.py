"""Rows whose files the archive has lost or has damaged.

Rows of images, and of conflicts in quarantine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import Connection, bindparam, or_, select, update

from hilum.domain import ConflictState, Instance, ReadingState
from hilum.store.archive.archive import quarantine_path
from hilum.store.retention import deletions
from hilum.store.schema.tables import conflict, instance, reading

_HAS_PIXELS = instance.c.pixels_removed_at.is_(None)
_ROWS = select(instance.c.sop_instance_uid, instance.c.digest, instance.c.path).where(
    instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True)), _HAS_PIXELS
)
_GIVE_UP = (
    update(instance)
    .where(
        instance.c.sop_instance_uid == bindparam("uid"),
        instance.c.path == bindparam("named"),
        _HAS_PIXELS,
    )
    .values(pixels_removed_at=bindparam("now"))
    .returning(instance.c.id)
)
_NOT_READ = (
    select(instance.c.sop_instance_uid)
    .join(reading, reading.c.instance_id == instance.c.id)
    .where(
        instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True)),
        reading.c.state.in_((ReadingState.FAILED, ReadingState.NOT_ANALYSED)),
    )
)
_DAMAGED_SECONDS = 3600.0  # not at once: a reader may have it open
# Not as a list: SQLAlchemy expands lists, and does not for several sets of parameters.
_IN_QUARANTINE = or_(conflict.c.state == ConflictState.HELD, conflict.c.state == ConflictState.KEPT)
_QUARANTINED = select(
    conflict.c.id, conflict.c.sop_instance_uid, conflict.c.digest, conflict.c.path
).where(conflict.c.sop_instance_uid.in_(bindparam("uids", expanding=True)), _IN_QUARANTINE)
_TAKE_PLACE = (
    update(conflict)
    .where(conflict.c.id == bindparam("row"), conflict.c.path == bindparam("named"), _IN_QUARANTINE)
    .values(path=bindparam("came"), size_bytes=bindparam("bytes"))
)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The row of a conflict, its `path`, and an image that was received with the same bytes."""

    row_id: int
    path: str
    same: Instance


def paths_of(connection: Connection, same: Sequence[Instance]) -> dict[str, str]:
    """Paths of rows with pixels of these very bytes, by SOP Instance UID."""
    known = {(item.sop_instance_uid, item.digest) for item in same}
    rows = connection.execute(_ROWS, {"uids": list({uid for uid, _ in known})})
    return {
        row.sop_instance_uid: row.path
        for row in rows
        if (row.sop_instance_uid, row.digest) in known
    }


def not_read(connection: Connection, uids: Collection[str]) -> set[str]:
    """Those of these images of which a reading ended without numbers.

    Their files may be damaged.
    """
    return set(connection.execute(_NOT_READ, {"uids": list(uids)}).scalars())


def give_up(
    connection: Connection, paths: Mapping[str, str], damaged: Collection[str], now: float
) -> None:
    """Mark the pixels of these images as gone, as if retention had removed them.

    A row that names another file by now is left alone. Locks in the order of locks. `damaged`:
    images whose file is there, and will be deleted.
    """
    for uid, path in sorted(paths.items()):
        row_id = connection.execute(
            _GIVE_UP, {"uid": uid, "named": path, "now": now}
        ).scalar_one_or_none()
        if row_id is not None and uid in damaged:
            deletions.expire(connection, path, "superseded", now + _DAMAGED_SECONDS, row_id)


def quarantined(connection: Connection, same: Sequence[Instance]) -> list[Quarantined]:
    """Conflicts of these very bytes with a file in quarantine.

    Each with the first of the received images.
    """
    firsts = {(item.sop_instance_uid, item.digest): item for item in reversed(same)}
    rows = connection.execute(
        _QUARANTINED, {"uids": list({item.sop_instance_uid for item in same})}
    )
    keyed = [(row, firsts.get((row.sop_instance_uid, row.digest))) for row in rows]
    return [Quarantined(row.id, row.path, item) for row, item in keyed if item is not None]


def take_place(connection: Connection, lost: Iterable[Quarantined]) -> None:
    """Make the received file the conflict's file, unless its row names another one by now.

    A person's decision stays.
    """
    rows = sorted(((item.row_id, item.path, item.same) for item in lost), key=itemgetter(0))
    values = [
        {"row": row, "named": path, "came": quarantine_path(same.path), "bytes": same.size_bytes}
        for row, path, same in rows
    ]
    connection.execute(_TAKE_PLACE, values)
