"""A host that does not migrate waits for the one that does."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from hilum.errors import ConfigurationError, NotYet
from hilum.services.upgrade import migrate_at_rest, until_done
from hilum.settings import LedgerSection, Settings, Site
from hilum.store.migrations.migrate import migrate
from hilum.store.migrations.revision import REVISION, require_revision
from testing.serving import free_ports
from tests.support.ledger.ledgers import older_sqlite
from tests.support.server.commands import hilum


def quiet(_problem: str) -> None:
    """Say nothing."""


def test_a_wait_ends_when_another_host_has_migrated(empty_url: str) -> None:
    said = list[str]()
    has_said = threading.Event()

    def say(problem: str) -> None:
        said.append(problem)
        has_said.set()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(until_done, lambda: require_revision(empty_url), 60.0, say)
        assert has_said.wait(30)
        migrate(empty_url)
        waiting.result(60)
    assert len(said) == 1
    assert "hilum migrate" in said[0]


def test_a_wait_that_takes_too_long_ends_with_the_remedy(empty_url: str) -> None:
    with pytest.raises(NotYet, match="`hilum migrate`"):
        until_done(lambda: require_revision(empty_url), 0.0, quiet)


def test_nobody_waits_for_a_ledger_of_a_newer_version(ledger_url: str) -> None:
    engine = create_engine(ledger_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(ConfigurationError, match="is of a newer version") as refused:
        until_done(lambda: require_revision(ledger_url), 60.0, quiet)
    assert not isinstance(refused.value, NotYet)


def test_a_migration_waits_for_servers_of_the_earlier_version(tmp_path: Path) -> None:
    url = older_sqlite(tmp_path, "0013")
    settings = Settings(site=Site(state_dir=tmp_path), ledger=LedgerSection(url=url))
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as earlier, earlier:
        earlier.execute(
            "INSERT INTO process (name, role, host, pid, started_at, beat_at, is_ready)"
            " VALUES ('elsewhere:listener:1', 'listener', 'elsewhere', 1, 1, ?, 1)",
            (time.time(),),
        )
    with pytest.raises(NotYet, match="Stop each `hilum serve`"):
        migrate_at_rest(settings)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as earlier, earlier:
        earlier.execute("DELETE FROM process")
    assert migrate_at_rest(settings) == REVISION


def test_a_command_waits_and_says_for_what(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"postgresql+psycopg://hilum@127.0.0.1:{port}/hilum"
    done = hilum(
        "ledger", "wait", "--seconds", "1", folder=tmp_path, environment={"HILUM_LEDGER__URL": url}
    )
    assert done.returncode == 2
    waits, problem = done.stderr.splitlines()
    assert waits.startswith("hilum: waits: ledger: cannot open the database: ")
    assert problem.endswith("Check ledger.url.")
