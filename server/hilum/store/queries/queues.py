"""Depth and age of the queues.

The conditions repeat those of the partial indexes word for word, or the planner cannot use them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    TextClause,
    bindparam,
    case,
    func,
    null,
    select,
    text,
)

from hilum.domain import Priority
from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.queue.queues import QUEUES, Queue
from hilum.store.schema.tables import delivery, document, reading, result

Item = dict[str, Any]
_Key = tuple[str, int, str | None]
_DUE = text("state = 'due'")
_LEASED = text("state = 'leased'")
_STUCK = text("state IN ('failed', 'dead')")
_DUE_AND_READ = text("state = 'due' AND open_readings = 0")


def queues(connection: Connection, now: float) -> list[Item]:
    """One item for each stage and priority.

    For `deliver` one for each destination and priority with open rows. Due: may be claimed now.
    Waiting: its quiet period or its pause runs. Leased: in work. A study counts once its images are
    read. A delivery is as old as its document, because each failed try makes it due later.
    """
    found: dict[_Key, Item] = {
        (stage, priority.value, None): _empty(stage, priority, None)
        for stage in QUEUES
        if stage != "deliver"
        for priority in _priorities(stage)
    }
    for stage in QUEUES:
        _add_counts(connection, found, stage, now)
    for place, written_at in _first_written(connection).items():
        found[place].update(oldest_age_seconds=max(0.0, now - written_at))
    return list(found.values())


def _add_counts(connection: Connection, found: dict[_Key, Item], stage: str, now: float) -> None:
    for row in _DUE_ROWS[stage].all(connection, {"now": now}):
        age = max(0.0, now - row.oldest)
        _item(found, stage, row).update(
            due=row.due, waiting=row.items - row.due, oldest_age_seconds=age
        )
    for row in _LEASED_ROWS[stage].all(connection):
        _item(found, stage, row).update(leased=row.items)


def _first_rows(connection: Connection) -> dict[_Key, int]:
    """The row of the first open delivery of each priority and destination."""
    first: dict[_Key, int] = {}
    for rows in _FIRST_ROWS:
        for found in rows.all(connection):
            place = ("deliver", found.priority, found.destination)
            first[place] = min(found.row, first.get(place, found.row))
    return first


def _first_written(connection: Connection) -> dict[_Key, float]:
    """The moment at which the first document was written that its destination does not have.

    Found by row id: to look at all documents would take long.
    """
    first = _first_rows(connection)
    query = (
        select(delivery.c.id, document.c.created_at)
        .join_from(delivery, document)
        .where(delivery.c.id.in_(first.values()))
    )
    written = {row.id: row.created_at for row in connection.execute(query)} if first else {}
    return {place: written[row] for place, row in first.items()}


def _priorities(stage: str) -> Iterable[Priority]:
    """The priorities that a stage can have.

    Shadows read, and are compared, last. Commitment has one priority.
    """
    return {"compare": (Priority.REANALYSIS,), "commit": (Priority.LIVE,)}.get(stage, Priority)


def _item(found: dict[_Key, Item], stage: str, row: PreparedRow) -> Item:
    return found.setdefault(
        (stage, row.priority, row.destination),
        _empty(stage, Priority(row.priority), row.destination),
    )


def _empty(stage: str, priority: Priority, destination_name: str | None) -> Item:
    counts = {"due": 0, "waiting": 0, "leased": 0, "oldest_age_seconds": 0.0}
    return {
        "stage": stage,
        "priority": priority.name.lower(),
        "destination": destination_name,
        **counts,
    }


def _destination_of(queue: Queue) -> ColumnElement[Any]:
    return delivery.c.destination if queue.table is delivery else null().label("destination")


def _grouping(queue: Queue) -> list[ColumnElement[Any]]:
    return [queue.table.c.priority, *([delivery.c.destination] if queue.table is delivery else [])]


def _due_rows(queue: Queue) -> Select[Any]:
    table = queue.table
    due = func.sum(case((table.c.due_at <= bindparam("now"), 1), else_=0)).label("due")
    columns = (
        table.c.priority,
        _destination_of(queue),
        func.count().label("items"),
        due,
        func.min(table.c.due_at).label("oldest"),
    )
    condition = _DUE if queue.extra is None else _DUE_AND_READ
    return select(*columns).select_from(table).where(condition).group_by(*_grouping(queue))


def _leased_rows(queue: Queue) -> Select[Any]:
    columns = (queue.table.c.priority, _destination_of(queue), func.count().label("items"))
    return select(*columns).select_from(queue.table).where(_LEASED).group_by(*_grouping(queue))


def _stuck_rows(queue: Queue) -> Select[Any]:
    table = queue.table
    names = [delivery.c.destination] if queue.table is delivery else []
    columns = (
        table.c.reason,
        _destination_of(queue),
        func.count().label("items"),
        func.min(table.c.finished_at).label("since"),
    )
    query = select(*columns).select_from(table).where(_STUCK)
    return query.group_by(table.c.reason, *names).order_by(table.c.reason, *names)


def _first_open(state: TextClause) -> Select[Any]:
    place = (delivery.c.priority, delivery.c.destination)
    return select(*place, func.min(delivery.c.id).label("row")).where(state).group_by(*place)


# The front page and every scrape execute all of them: to build each anew took most of that time.
_DUE_ROWS = {stage: PreparedStatement(_due_rows(queue)) for stage, queue in QUEUES.items()}
_LEASED_ROWS = {stage: PreparedStatement(_leased_rows(queue)) for stage, queue in QUEUES.items()}
_STUCK_ROWS = {stage: PreparedStatement(_stuck_rows(queue)) for stage, queue in QUEUES.items()}
_FIRST_ROWS = tuple(PreparedStatement(_first_open(state)) for state in (_DUE, _LEASED))


def due_readings(connection: Connection, at_most: int) -> int:
    """Due readings of the priorities urgent and live, counted up to `at_most`.

    So a long queue costs no more than a full one.
    """
    live = select(reading.c.id).where(_DUE, reading.c.priority < Priority.REANALYSIS).limit(at_most)
    return int(connection.execute(select(func.count()).select_from(live.subquery())).scalar_one())


def stuck(connection: Connection) -> list[Item]:
    """Failed and dead rows by stage, reason and destination: they need a person, then `requeue`."""
    return [
        {"stage": stage, **row._asdict()}
        for stage, statement in _STUCK_ROWS.items()
        for row in statement.all(connection)
    ]


def failing(connection: Connection, before: float) -> list[Item]:
    """Destinations that did not take documents written before that time, though one was tried.

    How many, and the error of the last try. Documents that wait for the circuit breaker
    (`hilum.deliver.circuit_breaker`) count as well. A document's time is stored behind its bytes,
    so few are looked at.
    """
    late = _late_destinations(connection, before)
    if not late:
        return []
    found: dict[str, Item] = {
        name: {"destination": name, "items": 0, "detail": None} for name in late
    }
    open_rows = _old_documents(late, _first_since(connection, before))
    # While a try runs into its timeout, there may be no other row. Each state has its own index.
    for open_state in (_DUE, _LEASED):
        for row in connection.execute(open_rows.where(open_state)):
            item = found[row.destination]
            item.update(items=item["items"] + row.items, detail=row.detail or item["detail"])
    return [item for item in found.values() if item["detail"] is not None]


def _late_destinations(connection: Connection, before: float) -> list[str]:
    return sorted(
        {
            name
            for (_, _, name), written_at in _first_written(connection).items()
            if written_at < before and name is not None
        }
    )


def _old_documents(names: list[str], first_young: int) -> Select[Any]:
    """Deliveries of documents before `first_young`, by destination: their number and an error."""
    # No condition of the query: an index of all deliveries has that.
    is_old = delivery.c.document_id < first_young
    items = func.sum(case((is_old, 1), else_=0)).label("items")
    detail = func.max(case((is_old, delivery.c.detail))).label("detail")
    return (
        select(delivery.c.destination, items, detail)
        .where(delivery.c.destination.in_(names))
        .group_by(delivery.c.destination)
    )


def _first_since(connection: Connection, moment: float) -> int:
    """The first row among those of documents that was written then or later.

    They are in the order in which they were written.
    """
    newest = connection.execute(select(func.max(document.c.id))).scalar_one() or 0

    def written_at(row_id: int) -> float:
        there = (
            select(document.c.created_at)
            .where(document.c.id >= row_id)
            .order_by(document.c.id)
            .limit(1)
        )
        return float(connection.execute(there).scalar_one())

    return bisect_left(range(newest + 1), moment, key=written_at)


def outcomes(connection: Connection, since: float) -> list[Item]:
    """Current results stored since then, by release, outcome and reason."""
    groups = (result.c.release, result.c.outcome, result.c.outcome_reason)
    columns = (
        result.c.release,
        result.c.outcome,
        result.c.outcome_reason.label("reason"),
        func.count().label("results"),
    )
    query = (
        select(*columns)
        .where(result.c.created_at >= since, result.c.is_current.is_(True))
        .group_by(*groups)
        .order_by(*groups)
    )
    return [row._asdict() for row in connection.execute(query)]
