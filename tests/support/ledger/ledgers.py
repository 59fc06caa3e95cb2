"""Ledgers for tests, on SQLite and on a real PostgreSQL, each copied from one that was migrated once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import make_url

from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.migrations import migrate as migrating
from hilum.store.migrations.migrate import migrate
from hilum.store.queries.views import LedgerViews
from tests.support.ledger.postgres import fresh_database, postgres_server
from tests.support.ledger.street import Clock, Street


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL of this test run; every test takes databases of its own from it."""
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    return fresh_database(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated ledger without rows."""
    return (
        migrated_sqlite(tmp_path)
        if request.param == "sqlite"
        else migrated_postgres(request.getfixturevalue("postgres_url"))
    )


@pytest.fixture
def clock() -> Clock:
    """Stands still until the test moves it."""
    return Clock()


@pytest.fixture
def ledger(ledger_url: str, clock: Clock) -> Iterator[Ledger]:
    """That of `ledger_url`, open."""
    opened = Ledger(ledger_url, clock)
    yield opened
    opened.close()


@pytest.fixture
def street(ledger: Ledger, clock: Clock) -> Street:
    """The stages of Hilum by hand."""
    return Street(ledger, clock)


def migrated_sqlite(folder: Path) -> str:
    """URL of a ledger in `folder`. All of them share an identity."""
    file = folder / "ledger.sqlite"
    file.write_bytes(_migrated_file())
    return f"sqlite:///{file}"


def migrated_postgres(url: str) -> str:
    """URL of a ledger on the server of `url`. All of a server share an identity."""
    return fresh_database(url, _migrated_database(url))


def older_sqlite(folder: Path, revision: str) -> str:
    """URL of a ledger in `folder` as an earlier version has left it."""
    url = f"sqlite:///{folder / 'ledger.sqlite'}"
    engine, config = open_engine(url), migrating._config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        migrating._mint_identity(connection)
    engine.dispose()
    return url


@cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ledger.sqlite")
        migrate(f"sqlite:///{file}")
        return file.read_bytes()


@cache
def _migrated_database(url: str) -> str:
    """Name of a database to which nobody connects: PostgreSQL copies no other."""
    made = fresh_database(url)
    migrate(made)
    return str(make_url(made).database)


@pytest.fixture
def views(ledger_url: str, clock: Clock) -> Iterator[LedgerViews]:
    """What the ledger shows."""
    with closing(LedgerViews(ledger_url, clock)) as opened:
        yield opened
