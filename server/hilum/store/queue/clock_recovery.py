"""Recovery of rows that are due too late because a clock was set back.

They wait for a moment that no wait of the settings explains.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, bindparam, or_, select, update

from hilum.domain import WorkState
from hilum.store.queue.queues import QUEUES, in_state
from hilum.store.schema.tables import delivery, destination, study

SKEW_SECONDS = 300.0
"""The clocks of several hosts may differ by this; a smaller step delays rows by no more."""
_LONGEST_LEASE_SECONDS = 600.0  # more than that of any stage, but of deliveries with long limits


def free(connection: Connection, stage: str, longest_seconds: float, now: float) -> int:
    """Make rows of a stage due that wait longer than `longest_seconds`, and return their number.

    Leases that last longer than any end, too. A study's quiet period begins anew at its length:
    more images may come. A locked row is left to its holder.
    """
    queue = QUEUES[stage]
    table = queue.table
    extra = [] if queue.extra is None else [queue.extra]
    too_late = [
        in_state(table, WorkState.DUE),
        *extra,
        table.c.due_at > now + longest_seconds + SKEW_SECONDS,
    ]
    if table is study:
        found = _late_studies(connection, too_late, now)
        begun = [_of_study(row, longest_seconds, now) for row in found.values()]
    else:
        found = _chosen(connection, table, too_late)
        begun = [{"row": row_id, "due_at": now} for row_id in found]
    if begun:
        connection.execute(update(table).where(table.c.id == bindparam("row")), begun)
    return len(found) + _end_leases(
        connection, table, max(longest_seconds, _LONGEST_LEASE_SECONDS), now
    )


def _late_studies(
    connection: Connection, too_late: list[ColumnElement[bool]], now: float
) -> dict[int, Row[Any]]:
    """Studies whose wait began before the clock was set back.

    A sender's wait may be a day, and the index of due rows lacks studies with open readings, so two
    queries find them.
    """
    found = _chosen(connection, study, [*too_late, _is_after_step(now)])
    waits = study.c.quiet_until >= study.c.last_received_at
    is_due = in_state(study, WorkState.DUE)
    return found | _chosen(connection, study, [is_due, _came_later(now), waits])


def _came_later(now: float) -> ColumnElement[bool]:
    return study.c.last_received_at > now + SKEW_SECONDS


def _is_after_step(now: float) -> ColumnElement[bool]:
    """Whether a study's wait began before the clock was set back.

    Else it waits as long as its listener's settings say, which may differ from ours: earlier
    settings, or another host's.
    """
    return or_(
        _came_later(now),
        study.c.collecting_since > now + SKEW_SECONDS,
        study.c.due_at > study.c.quiet_until,
    )


def _end_leases(connection: Connection, table: Table, longest_seconds: float, now: float) -> int:
    """End leases that last too long.

    A holder must name its token when it writes, so it goes on unless another worker was faster. But
    it may be dead.
    """
    held = in_state(table, WorkState.LEASED)
    lapsed = table.c.leased_until > now + longest_seconds + SKEW_SECONDS
    rows = (
        connection.execute(select(table.c.id).where(held, lapsed).with_for_update(skip_locked=True))
        .scalars()
        .all()
    )
    if rows:
        connection.execute(
            update(table).where(table.c.id == bindparam("row")),
            [{"row": row, "leased_until": now - 1} for row in rows],
        )
    if table is delivery:
        _end_ownership(connection, longest_seconds, now)
    return len(rows)


def _end_ownership(connection: Connection, longest_seconds: float, now: float) -> None:
    is_owned = destination.c.owned_until > now + longest_seconds + SKEW_SECONDS
    connection.execute(update(destination).where(is_owned).values(owned_until=now - 1))


def _chosen(
    connection: Connection, table: Table, conditions: list[ColumnElement[bool]]
) -> dict[int, Row[Any]]:
    # Unordered: by id SQLite would walk the whole table, and not the index of due rows.
    wanted = [
        table.c[name]
        for name in ("id", "quiet_until", "collecting_since", "last_received_at")
        if name in table.c
    ]
    query = select(*wanted).where(*conditions).with_for_update(skip_locked=True)
    return {row.id: row for row in connection.execute(query)}


def _of_study(row: Row[Any], longest_seconds: float, now: float) -> dict[str, float]:
    quiet = (
        row.quiet_until - row.last_received_at if row.last_received_at > now + SKEW_SECONDS else 0.0
    )
    until = now + min(max(0.0, quiet), longest_seconds)
    return {
        "row": row.id,
        "due_at": until,
        "quiet_until": until,
        "collecting_since": min(now, row.collecting_since),
    }
