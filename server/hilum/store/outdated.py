"""Rows that only tell what has been, and on which nothing rests: associations, and requests for storage commitment that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, select, true

from hilum.domain import CommitmentState
from hilum.store.schema import association, commitment

_LIMIT: Final = 1000  # of one transaction: listeners write into these tables, too


@dataclass(frozen=True, slots=True)
class Diary:
    """A table, the indexed column by which its rows grow old, and which of them may go."""

    table: Table
    moment: Column[float]
    has_ended: ColumnElement[bool]


DIARIES: Final[Mapping[str, Diary]] = {
    "associations": Diary(association, association.c.started_at, true()),
    "commitments": Diary(commitment, commitment.c.requested_at, commitment.c.state.in_((CommitmentState.REPORTED, CommitmentState.DEAD))),
}


def forget(connection: Connection, name: str, before: float) -> int:
    """Delete the oldest rows from before that moment, at most one batch; how many. Who is at one keeps it."""
    diary = DIARIES[name]
    old = select(diary.table.c.id).where(and_(diary.moment < before, diary.has_ended)).order_by(diary.moment).limit(_LIMIT)
    rows = connection.execute(old.with_for_update(skip_locked=True)).scalars().all()
    if rows:
        connection.execute(delete(diary.table).where(diary.table.c.id.in_(rows)))
    return len(rows)
