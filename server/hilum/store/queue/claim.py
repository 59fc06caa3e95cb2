"""`claim`, `retry`: fenced leases on the rows of a stage's table.

A lease is a random token in the row. Every change of the row must name it. So a worker that was
declared dead and comes back cannot overwrite its successor's work. Attempts are counted when a row
is claimed, before the work can crash the worker.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, and_, bindparam, select, update

from hilum.domain import Lease, ServerReason, WorkState
from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.queue.queues import Queue, Statements, in_state, statements
from hilum.store.schema.tables import reading


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim: the worker, the queue, the number of rows and the end of the lease.

    `destination` where the queue is one destination's.
    """

    stage: str
    limit: int
    owner: str
    now: float
    until: float
    destination: str | None = None

    @property
    def statements(self) -> Statements:
        """The statements of the queue."""
        return statements(self.stage, is_one_destination=self.destination is not None)

    @property
    def parameters(self) -> dict[str, object]:
        """Parameters of the statements that choose rows."""
        return {"now": self.now, **self._common}

    def late_since(self, since: float) -> dict[str, object]:
        """Parameters of the statement that chooses live rows which are due since then."""
        return {"since": since, **self._common}

    @property
    def _common(self) -> dict[str, object]:
        own = {} if self.destination is None else {"destination": self.destination}
        return {"limit": self.limit, **own}


def seconds_to_next(
    connection: Connection, stage: str, now: float, destination: str | None
) -> float | None:
    """Seconds until a row may be claimed, because it is due or because its lease ends.

    0: one may be claimed now; None: there is none.
    """
    look = statements(stage, is_one_destination=destination is not None).look
    found = look.one(connection, {"destination": destination} if destination is not None else {})
    first = min((moment for moment in found if moment is not None), default=None)
    return None if first is None else max(0.0, first - now)


def lapsed_row(connection: Connection, claim: Claim) -> PreparedRow | None:
    """The row whose lease lapsed first, or None."""
    return claim.statements.lapsed.first(connection, claim.parameters)


def claim_due(
    connection: Connection, claim: Claim, due: Sequence[PreparedRow]
) -> list[tuple[PreparedRow, Lease]]:
    """Lease these due rows to the claim's owner, and return each with its lease.

    Readings of the same images are leased with them.
    """
    taken = take(connection, claim, due)
    siblings = _siblings(connection, taken, claim.now) if claim.stage == "analyse" and taken else []
    return [*taken, *take(connection, claim, siblings)]


def _siblings(
    connection: Connection, taken: Sequence[tuple[PreparedRow, Lease]], now: float
) -> Sequence[PreparedRow]:
    """The other due readings of the claimed images, beyond the limit.

    An image is decoded once for all releases. Shadow readings are left out: they would take the
    place of more urgent images. A claimed reading is not due any more.
    """
    return _SIBLINGS.all(
        connection, {"instances": list({row.instance_id for row, _ in taken}), "now": now}
    )


# The state is no parameter: SQLite plans a statement anew whenever a parameter is bound that a
# partial index depends on, 40 µs.
_SIBLINGS = PreparedStatement(
    select(reading)
    .where(
        reading.c.instance_id.in_(bindparam("instances", expanding=True)),
        in_state(reading, WorkState.DUE),
        reading.c.is_shadow.is_(False),
        reading.c.due_at <= bindparam("now"),
    )
    .order_by(reading.c.id)
    .with_for_update(skip_locked=True),
    "instances",
)


def take(
    connection: Connection, claim: Claim, rows: Sequence[PreparedRow]
) -> list[tuple[PreparedRow, Lease]]:
    """Lease these rows to the claim's owner."""
    taken = [(row, _lease(row, claim.now)) for row in rows]
    if taken:
        common = {"until": claim.until, "owner": claim.owner}
        claim.statements.take.write_each(
            connection, [{**common, **_columns(lease)} for _, lease in taken]
        )
    return taken


def _lease(row: PreparedRow, now: float) -> Lease:
    has_lapsed = row.state == WorkState.LEASED
    return Lease(
        row.id,
        secrets.token_hex(16),
        row.attempts + 1,
        row.lapses + has_lapsed,
        now - row.due_at,
        has_lapsed,
    )


def _columns(lease: Lease) -> dict[str, object]:
    return {
        "row": lease.row_id,
        "token": lease.token,
        "tries": lease.attempts,
        "lapsed": lease.lapses,
    }


def fail_exhausted(
    connection: Connection, queue: Queue, now: float, maximum_lapses: int
) -> list[int]:
    """End the lapsed rows that have used up their lapses, and return their ids.

    The caller changes the rows that depend on them.
    """
    table = queue.table
    exhausted = and_(
        table.c.state == WorkState.LEASED,
        table.c.leased_until < now,
        table.c.lapses >= maximum_lapses - 1,
    )
    values = {
        "state": queue.failed,
        "reason": ServerReason.WORKER_CRASHED,
        "detail": f"{maximum_lapses} leases lapsed",
        "lapses": table.c.lapses + 1,
        "lease_token": None,
        "leased_until": None,
        "finished_at": now,
    }
    return list(
        connection.execute(
            update(table).where(exhausted).values(values).returning(table.c.id)
        ).scalars()
    )


def release(
    connection: Connection,
    queue: Queue,
    lease: Lease,
    detail: str,
    due_at: float,
    *,
    counts: bool,
    lapses: int = 0,
) -> bool:
    """Make a row due again at `due_at`; False: the lease is lost.

    `counts` False: the try is not counted. `lapses`: the number of lapses to add.
    """
    table = queue.table
    values = {
        "state": WorkState.DUE,
        "due_at": due_at,
        "detail": detail[:2000],
        "lease_token": None,
        "leased_until": None,
        "attempts": table.c.attempts if counts else table.c.attempts - 1,
        "lapses": table.c.lapses + lapses,
    }
    held = and_(table.c.id == lease.row_id, table.c.lease_token == lease.token)
    return connection.execute(update(table).where(held).values(values)).rowcount == 1


def expire(
    connection: Connection,
    table: Table,
    owner: str,
    now: float,
    *,
    is_clean: bool,
    counts: bool = False,
) -> int:
    """End all leases of a process, and return their number.

    Clean (it stopped as asked): due at once and, but for `counts`, not counted. Not clean: lapsed
    now.
    """
    held = and_(table.c.state == WorkState.LEASED, table.c.claimed_by == owner)
    tries = table.c.attempts if counts else table.c.attempts - 1
    clean = {"state": WorkState.DUE, "lease_token": None, "leased_until": None, "attempts": tries}
    values = clean if is_clean else {"leased_until": now - 1}
    return connection.execute(update(table).where(held).values(values)).rowcount
