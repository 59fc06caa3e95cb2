"""Transactions over connections that are kept.

An error leaves nothing behind, and they are as many as there are transactions at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, QueuePool, insert, select
from sqlalchemy.exc import IntegrityError

from hilum.store.database.engines import Transactions, open_engine
from hilum.store.schema.tables import destination

NAMES = select(destination.c.name)
NEW = insert(destination)


def test_an_error_leaves_nothing_behind(ledger_url: str) -> None:
    engine = open_engine(ledger_url)
    transactions = Transactions(engine)
    with transactions.begin() as connection:
        connection.execute(NEW, {"name": "a"})
    with pytest.raises(IntegrityError), transactions.begin() as connection:
        connection.execute(NEW, [{"name": "b"}, {"name": "a"}])
    with transactions.begin() as connection:
        assert connection.execute(NAMES).scalars().all() == ["a"]
    transactions.close()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


def test_one_after_the_other_shares_a_connection_and_close_gives_it_back(ledger_url: str) -> None:
    engine = open_engine(ledger_url)
    transactions = Transactions(engine)
    for name in ("a", "b", "c"):
        with transactions.begin() as connection:
            connection.execute(NEW, {"name": name})
    assert engine.pool.checkedout() == (1 if engine.dialect.name == "sqlite" else 0)  # type: ignore[attr-defined]
    with transactions.begin() as connection:
        transactions.close()
        assert len(connection.execute(NAMES).all()) == 3
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


def test_many_at_once_leave_connections_to_others(ledger_url: str) -> None:
    engine = open_engine(ledger_url, read_only=True)
    transactions = Transactions(engine)
    release = _held(transactions, _most(engine))
    release()
    with engine.begin() as connection:
        connection.execute(NAMES).all()
    transactions.close()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


def test_who_waits_for_a_connection_gets_the_next_one(ledger_url: str) -> None:
    engine = open_engine(ledger_url, read_only=True)
    transactions, found = Transactions(engine), list[object]()

    def late() -> None:
        with transactions.begin() as connection:
            found.extend(connection.execute(NAMES).scalars())
        found.append("done")

    release = _held(transactions, _most(engine))
    waiting = threading.Thread(target=late)
    waiting.start()
    waiting.join(0.2)  # until it waits in the pool
    release()
    waiting.join()
    assert found == ["done"]
    transactions.close()
    engine.dispose()


def _most(engine: Engine) -> int:
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.size() + engine.pool._max_overflow


def _held(transactions: Transactions, count: int) -> Callable[[], None]:
    """So many transactions at once; what ends them."""
    begun, ending = threading.Barrier(count + 1), threading.Event()

    def hold() -> None:
        with transactions.begin() as connection:
            connection.execute(NAMES).all()
            begun.wait(10)
            ending.wait(10)

    threads = [threading.Thread(target=hold) for _ in range(count)]
    for thread in threads:
        thread.start()
    begun.wait(10)

    def release() -> None:
        ending.set()
        for thread in threads:
            thread.join()

    return release
