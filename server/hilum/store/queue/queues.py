"""The tables that are stages' queues, and the statements of claims.

Statements are built once, here: to build one anew takes several times as long as to run it, and a
study takes dozens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.sql.selectable import NamedFromClause

from hilum.domain import (
    CommitmentState,
    ComparisonState,
    DeliveryState,
    Priority,
    ReadingState,
    ResultState,
    StudyState,
    WorkState,
)
from hilum.store.database.prepared import PreparedStatement
from hilum.store.schema.tables import commitment, comparison, delivery, reading, result, study

_STUCK = (StudyState.FAILED.value, DeliveryState.DEAD.value)


@dataclass(frozen=True, slots=True)
class Queue:
    """The columns and conditions that make one table a stage's queue."""

    table: Table
    failed: str
    requeueable: tuple[str, ...]
    extra: ColumnElement[bool] | None = None


QUEUES: dict[str, Queue] = {
    "analyse": Queue(
        reading, ReadingState.FAILED, (ReadingState.FAILED, ReadingState.NOT_ANALYSED)
    ),
    # A study enters the index when its last reading has ended: nothing polls it before.
    "assemble": Queue(
        study, StudyState.FAILED, (StudyState.FAILED,), study.c.open_readings == literal_column("0")
    ),
    "compare": Queue(comparison, ComparisonState.FAILED, (ComparisonState.FAILED,)),
    "report": Queue(result, ResultState.FAILED, (ResultState.FAILED,)),
    "deliver": Queue(delivery, DeliveryState.DEAD, (DeliveryState.DEAD, DeliveryState.WITHHELD)),
    "commit": Queue(commitment, CommitmentState.DEAD, (CommitmentState.DEAD,)),
}


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of one queue.

    Parameters: `now`, `limit`, `destination` where the queue is one destination's; `take`: one set
    of them a row. `look` yields the moments at which the first row of each priority is due, and
    then that of the first end of a lease. `late`: live rows that are due since `since`.
    """

    look: PreparedStatement
    lapsed: PreparedStatement
    due: PreparedStatement
    late: PreparedStatement
    take: PreparedStatement


@cache
def statements(stage: str, *, is_one_destination: bool) -> Statements:
    """The statements of a stage's queue."""
    queue = QUEUES[stage]
    own = [delivery.c.destination == bindparam("destination")] if is_one_destination else []
    is_due = [
        in_state(queue.table, WorkState.DUE),
        *own,
        *([] if queue.extra is None else [queue.extra]),
    ]
    is_leased = [in_state(queue.table, WorkState.LEASED), *own]
    return Statements(
        look=PreparedStatement(_look(queue.table, is_due, is_leased)),
        lapsed=PreparedStatement(_lapsed(queue.table, is_leased)),
        due=PreparedStatement(_due(queue.table, is_due)),
        late=PreparedStatement(_late(queue.table, is_due)),
        take=PreparedStatement(_take(queue.table)),
    )


def in_state(table: NamedFromClause[Any], state: StrEnum) -> ColumnElement[bool]:
    """A condition with the state in the statement's text.

    A partial index serves only conditions that the planner can see.
    """
    is_it: ColumnElement[bool] = table.c.state == literal_column(f"'{state.value}'")
    return and_(is_stuck(table), is_it) if state.value in _STUCK else is_it


def is_stuck(table: NamedFromClause[Any]) -> ColumnElement[bool]:
    """Failed or dead: word for word the condition of the partial indexes."""
    return text(f"{table.name}.state IN ('failed', 'dead')")  # type: ignore[return-value]  # a clause that stands for a condition


def _look(
    table: Table, is_due: list[ColumnElement[bool]], is_leased: list[ColumnElement[bool]]
) -> Select[Any]:
    """A select of the next moments: each priority is a range of its own in the index."""
    earliest = select(table.c.due_at).where(*is_due).order_by(table.c.due_at).limit(1)
    priorities = [
        earliest.where(table.c.priority == literal_column(str(priority.value))).scalar_subquery()
        for priority in Priority
    ]
    first_end = (
        select(table.c.leased_until).where(*is_leased).order_by(table.c.leased_until).limit(1)
    )
    return select(*priorities, first_end.scalar_subquery())


def _lapsed(table: Table, is_leased: list[ColumnElement[bool]]) -> Select[Any]:
    query = (
        select(table)
        .where(*is_leased, table.c.leased_until < bindparam("now"))
        .order_by(table.c.leased_until)
        .limit(1)
    )
    return query.with_for_update(skip_locked=True)


def _due(table: Table, is_due: list[ColumnElement[bool]]) -> Select[Any]:
    query = (
        select(table)
        .where(*is_due, table.c.due_at <= bindparam("now"))
        .order_by(table.c.priority, table.c.due_at, table.c.id)
    )
    return query.limit(bindparam("limit")).with_for_update(skip_locked=True)


def _late(table: Table, is_due: list[ColumnElement[bool]]) -> Select[Any]:
    is_live = table.c.priority == literal_column(str(Priority.LIVE.value))
    query = (
        select(table)
        .where(*is_due, is_live, table.c.due_at <= bindparam("since"))
        .order_by(table.c.due_at, table.c.id)
    )
    return query.limit(bindparam("limit")).with_for_update(skip_locked=True)


def _take(table: Table) -> Update:
    return (
        update(table)
        .where(table.c.id == bindparam("row"))
        .values(
            state=WorkState.LEASED.value,
            lease_token=bindparam("token"),
            leased_until=bindparam("until"),
            claimed_by=bindparam("owner"),
            attempts=bindparam("tries"),
            lapses=bindparam("lapsed"),
        )
    )
