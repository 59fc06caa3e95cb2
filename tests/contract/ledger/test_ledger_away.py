"""What a database says when it does not answer, on SQLite and on a real PostgreSQL.

The loops wait then, and crash at anything else.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, QueuePool, create_engine, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from hilum.store.database.engines import AWAY, error_text, open_engine, open_reader
from hilum.store.ledger import Ledger
from tests.support.ledger.database import change
from tests.support.ledger.ledgers import migrated_postgres


def failure(act: Callable[[], object]) -> SQLAlchemyError:
    with pytest.raises(SQLAlchemyError) as caught:
        act()
    return caught.value


@pytest.fixture
def url(postgres_url: str) -> str:
    return migrated_postgres(postgres_url)


def test_a_server_that_ends_our_connection_in_the_middle_is_away(url: str) -> None:
    engine, other = open_engine(url), open_engine(url)

    def lose(statement: str) -> None:
        with engine.begin() as connection:
            pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            with other.begin() as killer:
                killer.execute(text(f"SELECT pg_terminate_backend({pid}, 5000)"))
            if statement:
                connection.execute(text(statement))

    for statement in (
        "",
        "SELECT 1",
        "INSERT INTO installation VALUES ('a', 'b')",
    ):  # the first one ends at its commit
        assert isinstance(failure(lambda said=statement: lose(said)), AWAY), statement
    with engine.begin() as connection:
        assert (
            connection.execute(
                text("SELECT count(*) FROM installation WHERE key = 'a'")
            ).scalar_one()
            == 0
        )
    engine.dispose()
    other.dispose()


def test_a_server_that_is_not_there_is_away(url: str, tmp_path: Path) -> None:
    engine = open_engine(
        make_url(url)
        .update_query_dict({"host": str(tmp_path)})
        .render_as_string(hide_password=False)
    )
    error = failure(engine.connect)
    assert isinstance(error, AWAY)
    assert "No such file or directory" in error_text(error)


def test_a_server_that_says_nothing_is_not_waited_for_for_long_unless_the_url_says_so(
    url: str,
) -> None:
    slower = (
        make_url(url)
        .update_query_dict({"keepalives_idle": "77"})
        .render_as_string(hide_password=False)
    )
    engine, patient = open_engine(url), open_engine(slower)
    assert _said_to_libpq(engine) == {
        "tcp_user_timeout": "10000",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
    }
    assert _said_to_libpq(patient) == {**_said_to_libpq(engine), "keepalives_idle": "77"}
    engine.dispose()
    patient.dispose()


def _said_to_libpq(engine: Engine) -> dict[str, str]:
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        said = driver.info.get_parameters()
    return {
        name: value
        for name, value in said.items()
        if name == "tcp_user_timeout" or name.startswith("keepalives_")
    }


def test_subscriptions_find_the_server_among_several(url: str, tmp_path: Path) -> None:
    """In both forms in which SQLAlchemy takes them."""
    there = make_url(url).query["host"]
    for hosts in (f"{tmp_path},{there}", (f"{tmp_path}:5432", f"{there}:5432")):
        several = (
            make_url(url).update_query_dict({"host": hosts}).render_as_string(hide_password=False)
        )
        ledger = Ledger(several)
        subscription = ledger.listen("analyse")
        change(ledger, "NOTIFY hilum_analyse")
        assert subscription.wait(30), hosts
        subscription.close()
        ledger.close()


def test_a_server_that_only_reads_for_now_is_away(url: str) -> None:
    """As a standby before it is promoted.

    Sessions keep what they were begun with: the next one has to be another.
    """
    engine, reader = open_engine(url), open_reader(url)

    def write(to: Engine) -> None:
        with to.begin() as connection:
            connection.execute(text("INSERT INTO installation VALUES ('a', 'b')"))

    _set(url, "default_transaction_read_only = on")
    error = failure(lambda: write(engine))
    assert isinstance(error, AWAY)
    assert error_text(error) == "cannot execute INSERT in a read-only transaction"
    _set(url, "default_transaction_read_only = off")
    write(engine)
    assert not isinstance(failure(lambda: write(reader)), AWAY), "it only reads because we said so"
    engine.dispose()
    reader.dispose()


def test_a_server_that_ends_a_session_as_idle_is_away(url: str) -> None:
    _set(url, "idle_in_transaction_session_timeout = 10")
    engine = open_engine(url)

    def dawdle() -> None:
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            assert select.select([connection.connection.driver_connection], [], [], 30)[0], (
                "it has ended"
            )
            connection.execute(text("SELECT 1"))

    assert isinstance(failure(dawdle), AWAY)
    engine.dispose()


def _set(url: str, said: str) -> None:
    """For the sessions that begin from now on."""
    engine = create_engine(make_url(url).set(database="postgres"))
    with engine.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {make_url(url).database} SET {said}"))
    engine.dispose()


def test_a_lock_that_nobody_gives_free_is_away(url: str) -> None:
    engine = open_engine(url)
    with engine.begin() as first, engine.begin() as second:
        first.execute(text("LOCK TABLE installation"))
        second.execute(text("SET LOCAL lock_timeout = 10"))
        assert isinstance(failure(lambda: second.execute(text("SELECT 1 FROM installation"))), AWAY)
    engine.dispose()


def test_a_pool_without_a_free_connection_is_away(ledger_url: str) -> None:
    engine = create_engine(
        ledger_url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    with engine.connect():
        error = failure(engine.connect)
    assert isinstance(error, AWAY)
    assert "QueuePool limit" in error_text(error)
    engine.dispose()


def test_what_we_ask_wrongly_is_a_bug(ledger_url: str) -> None:
    engine = open_engine(ledger_url)
    wrong = ["INSERT INTO installation (key) VALUES ('a')"]
    if engine.dialect.name == "postgresql":  # SQLite has one word for both
        wrong.append("SELECT 1 FROM installation WHERE key = 1 AND")
    for statement in wrong:
        with engine.connect() as connection:
            assert not isinstance(
                failure(lambda said=statement, to=connection: to.execute(text(said))), AWAY
            ), statement
    engine.dispose()
