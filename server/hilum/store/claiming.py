"""`claim`, `retry`, `requeue`: fenced leases on the rows of a stage's table.

A lease is a random token in the row. Whoever advances the row must name it, so a worker that was declared dead and comes back
cannot overwrite what its successor did. Attempts are counted when a row is claimed, before the work can crash the worker.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Table, and_, case, func, select, update

from hilum.domain import DeliveryState, Lane, Lease, ReadingState, Reason, ResultState, StudyState, WorkState
from hilum.store.schema import delivery, reading, result, study

_CHUNK = 10_000  # parameters of one statement; PostgreSQL takes 65,535, SQLite 32,766


@dataclass(frozen=True, slots=True)
class Queue:
    """How one table serves as a stage's queue. Due rows that are equal in `together` are claimed together, beyond the limit."""

    table: Table
    failed: str
    requeueable: tuple[str, ...]
    extra: ColumnElement[bool] | None = None
    together: Column[Any] | None = None


QUEUES: dict[str, Queue] = {
    "analyse": Queue(reading, ReadingState.FAILED, (ReadingState.FAILED, ReadingState.NOT_ANALYSED), together=reading.c.instance_id),
    # A study waits in the index until its last reading has ended: nothing polls it meanwhile.
    "assemble": Queue(study, StudyState.FAILED, (StudyState.FAILED,), study.c.open_readings == 0),
    "report": Queue(result, ResultState.FAILED, (ResultState.FAILED,)),
    "deliver": Queue(delivery, DeliveryState.DEAD, (DeliveryState.DEAD,)),
}


def claim_rows(
    connection: Connection,
    queue: Queue,
    limit: int,
    owner: str,
    lease_seconds: float,
    now: float,
    *,
    is_idle: bool,
    only: ColumnElement[bool] | None,
) -> list[tuple[Row[Any], Lease]]:
    """Rows to work on, each with its lease.

    A row whose lease lapsed is claimed alone, and only by a worker that holds nothing else: if it is the row that kills workers,
    it shall take no neighbour along.
    """
    lapsed = _lapsed_row(connection, queue, now, only)
    if lapsed is not None:
        return [_take(connection, queue.table, lapsed, owner, lease_seconds, now)] if is_idle else []
    wanted = _due_rows(connection, queue, limit, now, only)
    return [_take(connection, queue.table, row, owner, lease_seconds, now) for row in wanted]


def _due_rows(connection: Connection, queue: Queue, limit: int, now: float, only: ColumnElement[bool] | None) -> Sequence[Row[Any]]:
    table = queue.table
    conditions = [table.c.state == WorkState.DUE, table.c.due_at <= now]
    conditions += [part for part in (queue.extra, only) if part is not None]
    query = select(table).where(*conditions).order_by(table.c.lane, table.c.due_at, table.c.id).limit(limit)
    rows = connection.execute(query.with_for_update(skip_locked=True)).all()
    return [*rows, *_siblings(connection, queue, rows, now)]


def _siblings(connection: Connection, queue: Queue, rows: Sequence[Row[Any]], now: float) -> Sequence[Row[Any]]:
    """The other due rows of what was claimed: an image is decoded once for all releases that are due."""
    table, column = queue.table, queue.together
    if column is None or not rows:
        return []
    theirs = column.in_({getattr(row, column.name) for row in rows})
    others = and_(theirs, table.c.state == WorkState.DUE, table.c.due_at <= now, table.c.id.not_in([row.id for row in rows]))
    return connection.execute(select(table).where(others).order_by(table.c.id).with_for_update(skip_locked=True)).all()


def _lapsed_row(connection: Connection, queue: Queue, now: float, only: ColumnElement[bool] | None) -> Row[Any] | None:
    table = queue.table
    conditions = [table.c.state == WorkState.LEASED, table.c.leased_until < now]
    conditions += [only] if only is not None else []
    query = select(table).where(*conditions).order_by(table.c.leased_until).limit(1)
    return connection.execute(query.with_for_update(skip_locked=True)).first()


def _take(connection: Connection, table: Table, row: Row[Any], owner: str, lease_seconds: float, now: float) -> tuple[Row[Any], Lease]:
    token = uuid.uuid4().hex
    has_lapsed = row.state == WorkState.LEASED
    lease = Lease(row.id, token, row.attempts + 1, row.lapses + has_lapsed, waited_seconds=now - row.due_at)
    connection.execute(
        update(table)
        .where(table.c.id == row.id)
        .values(
            state=WorkState.LEASED,
            lease_token=token,
            leased_until=now + lease_seconds,
            claimed_by=owner,
            attempts=lease.attempts,
            lapses=lease.lapses,
        )
    )
    return row, lease


def next_due(connection: Connection, queue: Queue, only: ColumnElement[bool] | None) -> float | None:
    """When the earliest due row is due; one look into the index for each lane."""
    table = queue.table
    found: list[float] = []
    conditions = [table.c.state == WorkState.DUE, *(part for part in (queue.extra, only) if part is not None)]
    for lane in Lane:
        query = select(table.c.due_at).where(*conditions, table.c.lane == lane).order_by(table.c.due_at).limit(1)
        found += connection.execute(query).scalars().all()
    return min(found, default=None)


def fail_hopeless(connection: Connection, queue: Queue, now: float, maximum_lapses: int) -> list[int]:
    """End the lapsed rows that have used up their lapses; their ids, so that what hangs on them can follow."""
    table = queue.table
    hopeless = and_(table.c.state == WorkState.LEASED, table.c.leased_until < now, table.c.lapses >= maximum_lapses - 1)
    values = {
        "state": queue.failed,
        "reason": Reason.WORKER_CRASHED,
        "detail": f"{maximum_lapses} leases lapsed",
        "lapses": table.c.lapses + 1,
        "lease_token": None,
        "leased_until": None,
        "finished_at": now,
    }
    return list(connection.execute(update(table).where(hopeless).values(values).returning(table.c.id)).scalars())


def give_back(connection: Connection, queue: Queue, lease: Lease, detail: str, due_at: float, *, counts: bool) -> bool:
    """Due again at `due_at`; False: the lease is lost. With `counts` False the try is taken back."""
    table = queue.table
    values = {
        "state": WorkState.DUE,
        "due_at": due_at,
        "detail": detail[:2000],
        "lease_token": None,
        "leased_until": None,
        "attempts": table.c.attempts if counts else table.c.attempts - 1,
    }
    held = and_(table.c.id == lease.row_id, table.c.lease_token == lease.token)
    return connection.execute(update(table).where(held).values(values)).rowcount == 1


def expire(connection: Connection, table: Table, owner: str, now: float, *, is_clean: bool) -> int:
    """End all leases of a process. Clean (it stopped as asked): due at once and not counted. Not clean: lapsed now."""
    held = and_(table.c.state == WorkState.LEASED, table.c.claimed_by == owner)
    clean = {"state": WorkState.DUE, "lease_token": None, "leased_until": None, "attempts": table.c.attempts - 1}
    values = clean if is_clean else {"leased_until": now - 1}
    return connection.execute(update(table).where(held).values(values)).rowcount


def requeue_rows(connection: Connection, queue: Queue, now: float, condition: ColumnElement[bool]) -> list[int]:
    """Ended rows become due again with a clean record; their ids."""
    table = queue.table
    # A rejected image takes no part in anything, however often it is read.
    ended = and_(table.c.state.in_(queue.requeueable), table.c.reason.is_distinct_from(Reason.REJECTED), condition)
    values = {"state": WorkState.DUE, "due_at": now, "attempts": 0, "lapses": 0, "reason": None, "detail": None, "finished_at": None}
    return list(connection.execute(update(table).where(ended).values(values).returning(table.c.id)).scalars())


def reopen_studies(connection: Connection, reading_ids: list[int], now: float) -> None:
    """The studies of requeued readings are due again, as soon as those readings have ended."""
    is_open = case((reading.c.state.in_((ReadingState.DUE, ReadingState.LEASED)), 1), else_=0)
    counted = select(func.coalesce(func.sum(is_open), 0)).where(reading.c.study_instance_uid == study.c.study_instance_uid)
    again = {"state": StudyState.DUE, "due_at": now, "quiet_until": now, "lease_token": None, "leased_until": None}
    fresh = {"attempts": 0, "lapses": 0, "open_readings": counted.scalar_subquery()}
    for start in range(0, len(reading_ids), _CHUNK):
        theirs = select(reading.c.study_instance_uid).where(reading.c.id.in_(reading_ids[start : start + _CHUNK]))
        connection.execute(update(study).where(study.c.study_instance_uid.in_(theirs)).values({**again, **fresh}))
