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
_LONGEST_LEASE_SECONDS = 600.0  # more than that of any stage


def free(connection: Connection, stage: str, longest_seconds: float, now: float) -> int:
    """Make rows of a stage due that wait longer than `longest_seconds`, and return their number.

    Leases that last longer than any end, too. A study's quiet period begins anew at its length:
    more images may come. A locked row is left to its holder.
    """
    queue = QUEUES[stage]
    table = queue.table
    is_due = in_state(queue.table, WorkState.DUE)
    extra = [] if queue.extra is None else [queue.extra]
    too_late = [is_due, *extra, table.c.due_at > now + longest_seconds + SKEW_SECONDS]
    if (
        table is study
    ):  # a sender's wait may be a day, and the index of due rows lacks studies with open readings
        came_later = study.c.last_received_at > now + SKEW_SECONDS
        # Else it waits as long as its listener's settings say, which may differ from ours: earlier
        # settings, or another host's.
        too_late.append(
            or_(
                came_later,
                study.c.collecting_since > now + SKEW_SECONDS,
                study.c.due_at > study.c.quiet_until,
            )
        )
    found = _chosen(connection, table, too_late)
    if table is study:
        found |= _chosen(
            connection, table, [is_due, came_later, study.c.quiet_until >= study.c.last_received_at]
        )
    if found:
        begun = [
            (
                _of_study(row, longest_seconds, now)
                if table is study
                else {"row": row.id, "due_at": now}
            )
            for row in found.values()
        ]
        connection.execute(update(table).where(table.c.id == bindparam("row")), begun)
    return len(found) + _end_leases(
        connection, table, max(longest_seconds, _LONGEST_LEASE_SECONDS), now
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
        is_owned = destination.c.owned_until > now + longest_seconds + SKEW_SECONDS
        connection.execute(update(destination).where(is_owned).values(owned_until=now - 1))
    return len(rows)


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
