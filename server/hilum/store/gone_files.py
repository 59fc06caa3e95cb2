"""Rows of images whose files the archive has lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, select, update

from hilum.domain import Instance
from hilum.store.schema import instance

_HAS_PIXELS = instance.c.pixels_removed_at.is_(None)
_ROWS = select(instance.c.sop_instance_uid, instance.c.digest, instance.c.path).where(
    instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True)), _HAS_PIXELS
)
_GIVE_UP = (
    update(instance)
    .where(instance.c.sop_instance_uid == bindparam("uid"), instance.c.path == bindparam("named"), _HAS_PIXELS)
    .values(pixels_removed_at=bindparam("now"))
)


def paths_of(connection: Connection, same: Sequence[Instance]) -> dict[str, str]:
    """By SOP Instance UID, where rows with pixels of these very bytes have theirs."""
    digests = {item.sop_instance_uid: item.digest for item in same}
    rows = connection.execute(_ROWS, {"uids": list(digests)})
    return {row.sop_instance_uid: row.path for row in rows if row.digest == digests[row.sop_instance_uid]}


def give_up(connection: Connection, paths: Mapping[str, str], now: float) -> None:
    """The pixels of these images are gone, as if they had left by age, unless a row names another file by now. In the order of locks."""
    connection.execute(_GIVE_UP, [{"uid": uid, "named": path, "now": now} for uid, path in sorted(paths.items())])
