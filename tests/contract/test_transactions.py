"""Transactions over connections that are kept: an error leaves nothing behind, and they are as many as there are transactions at once."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from hilum.store.database import Transactions, open_engine
from hilum.store.schema import destination

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
