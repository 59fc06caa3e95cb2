"""Stored headers, newest image first, in bounded memory.

They hold the attributes for which the ledger has no column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, func, select

from hilum.store.schema.tables import instance

# Holds nearly every header; some hundred of them are in memory at once.
_BEGINNING_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """The beginning of an image's header, and whether that is all of it."""

    row_id: int
    study_instance_uid: str
    transfer_syntax_uid: str
    beginning: bytes
    is_whole: bool
    received_at: float


def before(
    connection: Connection, row_id: int | None, since: float | None, limit: int
) -> list[StoredHeader]:
    """Headers of images before this row id, newest first.

    None: begin with the newest. `since`: received then (seconds since the epoch) or later. Erased
    images are left out.
    """
    query = _headers()
    if row_id is not None:
        query = query.where(instance.c.id < row_id)
    if since is not None:
        query = query.where(instance.c.received_at >= since)
    return _read(connection, query.order_by(instance.c.id.desc()).limit(limit))


def of_study(connection: Connection, study_instance_uid: str, row_id: int) -> list[StoredHeader]:
    """Of images of one study, from this row id on."""
    return _read(
        connection,
        _headers().where(
            instance.c.study_instance_uid == study_instance_uid, instance.c.id >= row_id
        ),
    )


def newest(connection: Connection, study_instance_uids: Sequence[str]) -> list[StoredHeader]:
    """Of the newest image of each of these studies that has a header."""
    of = instance.c.study_instance_uid
    size = func.length(instance.c.header)
    last = select(func.max(instance.c.id)).where(of.in_(study_instance_uids), size > 0).group_by(of)
    return _read(connection, _headers().where(instance.c.id.in_(last)))


def _headers() -> Select[Any]:
    size = func.length(instance.c.header)
    beginning = func.substr(instance.c.header, 1, _BEGINNING_BYTES).label("beginning")
    columns = (
        instance.c.id,
        instance.c.study_instance_uid,
        instance.c.transfer_syntax_uid,
        instance.c.received_at,
    )
    return select(*columns, beginning, (size <= _BEGINNING_BYTES).label("is_whole")).where(size > 0)


def _read(connection: Connection, query: Select[Any]) -> list[StoredHeader]:
    return [_stored(row) for row in connection.execute(query)]


def _stored(row: Row[Any]) -> StoredHeader:
    uid = row.study_instance_uid
    syntax = row.transfer_syntax_uid
    return StoredHeader(
        row.id, uid, syntax, bytes(row.beginning), bool(row.is_whole), row.received_at
    )


def whole(connection: Connection, row_id: int) -> bytes:
    """The header of an image, of any length; empty: it was erased meanwhile."""
    return bytes(
        connection.execute(select(instance.c.header).where(instance.c.id == row_id)).scalar() or b""
    )
