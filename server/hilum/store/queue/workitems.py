"""Work items: written down before they are claimed, and each step of them.

One process asks a manager, by a lease. A step is written only if the row is still in the state that
the step began with: a process that has lost the lease overwrites nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from hilum.domain import (
    OPEN_WORKITEMS,
    Workitem,
    WorkitemReason,
    WorkitemState,
)
from hilum.store.database.engines import open_engine, open_reader
from hilum.store.schema.tables import workitem, workitem_manager

_CHUNK: Final = 500
_SKEW_SECONDS: Final = 60.0  # a lease that ends later is of a clock that was ahead
_NEW_MANAGER: Final = text(
    "INSERT INTO workitem_manager (name) VALUES (:name) ON CONFLICT (name) DO NOTHING"
)


class Workitems:
    """The work items of the ledger at an SQLAlchemy URL. Thread-safe."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._engine = open_engine(url)
        self._reader = open_reader(url)
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def hold(self, manager: str, owner: str, seconds: float) -> bool:
        """Lease a manager for so long; False: another process has it."""
        now = self._clock()
        with self._engine.begin() as connection:
            row = self._locked(connection, manager)
            left = (row.owned_until or 0.0) - now
            if row.owner not in (None, owner) and 0.0 < left <= seconds + _SKEW_SECONDS:
                return False
            self._write(connection, manager, owner=owner, owned_until=now + seconds)
            return True

    def give_back(self, manager: str, owner: str) -> None:
        """End our lease, if it is ours, so that another host goes on at once."""
        with self._engine.begin() as connection:
            if self._locked(connection, manager).owner == owner:
                self._write(connection, manager, owner=None, owned_until=None)

    def note(self, manager: str, problem: str) -> None:
        """Keep why a manager cannot be asked; empty: it can."""
        with self._engine.begin() as connection:
            self._locked(connection, manager)
            self._write(connection, manager, problem=problem)

    def problems(self) -> dict[str, str]:
        """Return why managers cannot be asked, by name."""
        query = select(workitem_manager.c.name, workitem_manager.c.problem)
        with self._reader.connect() as connection:
            rows = connection.execute(query.where(workitem_manager.c.problem != ""))
            return {row.name: row.problem for row in rows}

    def known(self, manager: str, workitem_uids: Collection[str]) -> set[str]:
        """Return those of these items that have a row."""
        found = set[str]()
        uids = sorted(workitem_uids)
        with self._reader.connect() as connection:
            for start in range(0, len(uids), _CHUNK):
                query = select(workitem.c.workitem_uid).where(
                    workitem.c.manager == manager,
                    workitem.c.workitem_uid.in_(uids[start : start + _CHUNK]),
                )
                found.update(connection.execute(query).scalars())
        return found

    def begin(
        self, manager: str, workitem_uid: str, transaction_uid: str, study_instance_uid: str
    ) -> Workitem | None:
        """Write an item down before its claim, durably; None: another process has just done so."""
        row = {
            "manager": manager,
            "workitem_uid": workitem_uid,
            "transaction_uid": transaction_uid,
            "state": WorkitemState.CLAIMING.value,
            "study_instance_uid": study_instance_uid,
            "found_at": self._clock(),
        }
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(workitem).values(row))
        except IntegrityError:
            return None
        return self.find(manager, workitem_uid)

    def find(self, manager: str, workitem_uid: str) -> Workitem | None:
        """Return an item, or None."""
        query = select(workitem).where(
            workitem.c.manager == manager, workitem.c.workitem_uid == workitem_uid
        )
        with self._reader.connect() as connection:
            row = connection.execute(query).first()
            return None if row is None else _item_of(row)

    def open_items(self, manager: str) -> list[Workitem]:
        """Return the items of a manager that are not finished, in the order in which they came."""
        query = select(workitem).where(
            workitem.c.manager == manager, workitem.c.finished_at.is_(None)
        )
        with self._reader.connect() as connection:
            return [_item_of(row) for row in connection.execute(query.order_by(workitem.c.id))]

    def latest(
        self, limit: int, states: Collection[WorkitemState] = (), manager: str = ""
    ) -> Sequence[Workitem]:
        """Return items, the newest first."""
        query = select(workitem).order_by(workitem.c.id.desc()).limit(limit)
        if states:
            query = query.where(workitem.c.state.in_([state.value for state in states]))
        if manager:
            query = query.where(workitem.c.manager == manager)
        with self._reader.connect() as connection:
            return [_item_of(row) for row in connection.execute(query)]

    def counts(self) -> dict[tuple[str, WorkitemState], int]:
        """Return the number of items by manager and state."""
        query = select(workitem.c.manager, workitem.c.state, func.count())
        with self._reader.connect() as connection:
            rows = connection.execute(query.group_by(workitem.c.manager, workitem.c.state))
            return {(name, WorkitemState(state)): count for name, state, count in rows}

    def step(
        self,
        item: Workitem,
        state: WorkitemState,
        reason: WorkitemReason | None = None,
        detail: str = "",
        attempts: int = 0,
    ) -> bool:
        """Write the next state of an item; False: it is not in the state of `item` any more."""
        now = self._clock()
        values: dict[str, Any] = {
            "state": state.value,
            "reason": None if reason is None else reason.value,
            "detail": detail,
            "attempts": attempts,
        }
        if state is WorkitemState.CLAIMED and item.claimed_at is None:
            values["claimed_at"] = now
        if state not in OPEN_WORKITEMS:
            values["finished_at"] = now
        with self._engine.begin() as connection:
            written = connection.execute(
                update(workitem)
                .where(workitem.c.id == item.id, workitem.c.state == item.state.value)
                .values(values)
            )
        return written.rowcount > 0

    def _locked(self, connection: Connection, manager: str) -> Row[Any]:
        query = select(workitem_manager).where(workitem_manager.c.name == manager)
        row = connection.execute(query.with_for_update()).first()
        if row is None:
            connection.execute(_NEW_MANAGER, {"name": manager})
            row = connection.execute(query.with_for_update()).one()
        return row

    def _write(self, connection: Connection, manager: str, **values: object) -> None:
        connection.execute(
            update(workitem_manager).where(workitem_manager.c.name == manager).values(values)
        )


def _item_of(row: Row[Any]) -> Workitem:
    return Workitem(
        id=row.id,
        manager=row.manager,
        workitem_uid=row.workitem_uid,
        transaction_uid=row.transaction_uid,
        state=WorkitemState(row.state),
        study_instance_uid=row.study_instance_uid,
        found_at=row.found_at,
        claimed_at=row.claimed_at,
        finished_at=row.finished_at,
        attempts=row.attempts,
        reason=None if row.reason is None else WorkitemReason(row.reason),
        detail=row.detail,
    )
