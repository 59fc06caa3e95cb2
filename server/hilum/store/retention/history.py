"""Deletion of old rows that no other row depends on.

Associations, ended requests for storage commitment, ended work items, the audit, and heartbeats of
processes that are gone: each replaced container leaves those of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    func,
    insert,
    select,
    true,
)

from hilum.domain import CommitmentState
from hilum.store.schema.tables import (
    asked_commitment,
    association,
    audit,
    audit_cursor,
    commitment,
    installation,
    process,
    workitem,
)

AUDIT_HORIZON: Final = "audit_horizon"
_LIMIT: Final = 1000  # of one transaction: listeners write into these tables, too
_ENDED: Final = (CommitmentState.REPORTED, CommitmentState.DEAD)


@dataclass(frozen=True, slots=True)
class AgedTable:
    """A table, its key, the column of age, and the rows that may be deleted.

    The column has an index if the rows can be many.
    """

    table: Table
    key: Column[Any]
    moment: Column[float]
    has_ended: ColumnElement[bool]
    allow: Callable[[Connection, float], None] = lambda *_: None
    """A statement to execute before rows from before that moment may be deleted."""


def _move_horizon(connection: Connection, before: float) -> None:
    """Move the horizon of the audit: its triggers keep rows from after that moment."""
    connection.execute(delete(installation).where(installation.c.key == AUDIT_HORIZON))
    connection.execute(insert(installation).values(key=AUDIT_HORIZON, value=repr(before)))


# Rows that the log and the collector have not read yet stay.
_HANDED_ON = (
    audit.c.id <= select(func.coalesce(func.min(audit_cursor.c.last_id), 0)).scalar_subquery()
)
AGED_TABLES: Final[Mapping[str, AgedTable]] = {
    "associations": AgedTable(association, association.c.id, association.c.started_at, true()),
    "commitments": AgedTable(
        commitment, commitment.c.id, commitment.c.requested_at, commitment.c.state.in_(_ENDED)
    ),
    "workitems": AgedTable(
        workitem, workitem.c.id, workitem.c.found_at, workitem.c.finished_at.is_not(None)
    ),
    "asked_commitments": AgedTable(
        asked_commitment, asked_commitment.c.id, asked_commitment.c.requested_at, true()
    ),
    "audit": AgedTable(audit, audit.c.id, audit.c.at, _HANDED_ON, _move_horizon),
    "processes": AgedTable(process, process.c.name, process.c.beat_at, true()),
}


def forget(connection: Connection, name: str, before: float) -> int:
    """Delete the oldest rows from before that moment, at most one batch; return their number.

    A locked row stays.
    """
    aged = AGED_TABLES[name]
    old = (
        select(aged.key)
        .where(and_(aged.moment < before, aged.has_ended))
        .order_by(aged.moment)
        .limit(_LIMIT)
    )
    rows = connection.execute(old.with_for_update(skip_locked=True)).scalars().all()
    if rows:
        aged.allow(connection, before)
        connection.execute(delete(aged.table).where(aged.key.in_(rows)))
    return len(rows)
