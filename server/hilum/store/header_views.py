"""Stored headers, newest image first, in bounded memory: what the ledger has no column for stands in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select

from hilum.store.schema import instance

_BEGINNING_BYTES: Final = 64 << 10  # holds nearly every header; some hundred of them are in memory at once


@dataclass(frozen=True, slots=True)
class StoredHeader:
    """The beginning of an image's header, and whether that is all of it."""

    row_id: int
    study_instance_uid: str
    transfer_syntax_uid: str
    beginning: bytes
    is_whole: bool


def before(connection: Connection, row_id: int | None, since: float | None, limit: int) -> list[StoredHeader]:
    """Of images before this row id (None: the newest), received at `since` (seconds since the epoch) or later. None of erased images."""
    size = func.length(instance.c.header)
    beginning = func.substr(instance.c.header, 1, _BEGINNING_BYTES)
    columns = (instance.c.id, instance.c.study_instance_uid, instance.c.transfer_syntax_uid, beginning, size <= _BEGINNING_BYTES)
    query = select(*columns).where(size > 0)
    if row_id is not None:
        query = query.where(instance.c.id < row_id)
    if since is not None:
        query = query.where(instance.c.received_at >= since)
    rows = connection.execute(query.order_by(instance.c.id.desc()).limit(limit))
    return [StoredHeader(number, study, syntax, bytes(header), bool(is_whole)) for number, study, syntax, header, is_whole in rows]


def whole(connection: Connection, row_id: int) -> bytes:
    """The header of an image, as long as it may be; empty: it was erased meanwhile."""
    return bytes(connection.execute(select(instance.c.header).where(instance.c.id == row_id)).scalar() or b"")
