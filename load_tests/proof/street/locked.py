"""ledger_locked: another program holds the ledger's write lock for longer than Hilum waits for it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from load_tests.proof.part import Found, Plan, pause
from load_tests.proof.street.street import Street

# Longer than the busy timeout of store.database, 30 s, twice; the short form sees the waiting only.
_LONG_SECONDS = 75.0
_SHORT_SECONDS = 5.0


def ledger_locked(plan: Plan, street: Street) -> Found:
    """Acknowledged meanwhile or visibly pushed back, nothing lost, and recovered unaided."""
    seconds = plan.of(_LONG_SECONDS, _SHORT_SECONDS)
    street.begin()
    before = len(street.router.books.acknowledged)
    with write_lock(street.ledger):
        plan.say(f"the ledger is locked for {seconds:g} s")
        pause(seconds)
    street.fault()
    return Found(
        {
            "seconds_locked": seconds,
            "images_acknowledged_while_locked": len(street.router.books.acknowledged) - before,
        }
    )


@contextlib.contextmanager
def write_lock(ledger: Path) -> Iterator[None]:
    """Hold BEGIN IMMEDIATE, as a backup tool or a forgotten shell would."""
    with contextlib.closing(
        sqlite3.connect(ledger, timeout=30, isolation_level=None)
    ) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
