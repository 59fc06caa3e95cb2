"""The ledger through a real PgBouncer in transaction mode, where every transaction may be on another session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import select, text
from structlog.testing import capture_logs

from hilum.settings import Settings
from hilum.store.admin import vacuum
from hilum.store.database.engines import open_engine, open_reader
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import expected_revision, migrate
from hilum.store.notify.notifier import notifier_for
from hilum.store.queries.views import LedgerViews
from hilum.store.schema.tables import study
from hilum.supervisor.checks.ledger import ledger_connections
from tests.support.ledger.database import rows
from tests.support.ledger.ledgers import migrated_postgres
from tests.support.ledger.pgbouncer import pgbouncer, through
from tests.support.ledger.postgres import fresh_database
from tests.support.ledger.street import Clock, Street

STUDIES = 8  # psycopg prepares a statement when it runs for the sixth time


@pytest.fixture
def direct_url(postgres_url: str) -> str:
    """A migrated ledger on PostgreSQL itself."""
    return migrated_postgres(postgres_url)


@pytest.fixture(scope="module")
def bouncer(postgres_url: str) -> Iterator[str]:
    """A PgBouncer before the PostgreSQL of this test run."""
    with pgbouncer(postgres_url) as url:
        yield url


@pytest.fixture
def pooled_url(bouncer: str, direct_url: str) -> str:
    """The ledger of `direct_url` through PgBouncer."""
    return through(bouncer, direct_url)


def test_studies_pass_all_stages_when_two_ledgers_share_two_sessions(pooled_url: str) -> None:
    clock = Clock()
    with closing(Ledger(pooled_url, clock)) as one, closing(Ledger(pooled_url, clock)) as two:
        for number in range(STUDIES):
            Street((one, two)[number % 2], clock).walk(f"1.2.{number}", 1)
            with closing(LedgerViews(pooled_url, clock)) as views:
                assert views.study(f"1.2.{number}") is not None
        states = {row.state for row in rows(one, study)}

    assert states == {"closed"}


def test_a_statement_that_runs_often_is_not_prepared_behind_a_pooler(pooled_url: str) -> None:
    engine = open_engine(pooled_url)
    for _ in range(STUDIES):
        with engine.begin() as connection:
            connection.execute(select(study)).all()
    with engine.begin() as connection:
        prepared = connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar()
    engine.dispose()

    assert prepared == 0


def test_a_statement_that_runs_often_is_prepared_without_a_pooler(direct_url: str) -> None:
    engine = open_engine(direct_url)
    for _ in range(STUDIES):
        with engine.begin() as connection:
            connection.execute(select(study)).all()
    with engine.begin() as connection:
        prepared = connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar()
    engine.dispose()

    assert prepared


def test_a_reader_behind_a_pooler_sees_one_state_throughout(pooled_url: str) -> None:
    reader = open_reader(pooled_url)
    clock = Clock()
    with closing(Ledger(pooled_url, clock)) as ledger, reader.connect() as connection:
        before = connection.execute(select(study)).all()
        Street(ledger, clock).walk("1.2.3", 1)
        after = connection.execute(select(study)).all()
    reader.dispose()

    assert (before, after) == ([], [])


def test_a_stage_behind_a_pooler_polls_and_leaves_no_listener_on_its_sessions(
    pooled_url: str,
) -> None:
    with capture_logs() as logs, closing(Ledger(pooled_url)) as ledger:
        subscriptions = [ledger.listen(stage) for stage in ("analyse", "deliver")]
        is_notified = subscriptions[0].wait(0.01)
        heard = rows(ledger, "SELECT pg_listening_channels()")
        for subscription in subscriptions:
            subscription.close()

    assert not is_notified
    assert heard == []
    assert [line["event"] for line in logs] == ["notifications_unavailable"]


def test_a_subscription_that_is_closed_ends_its_wait_behind_a_pooler(pooled_url: str) -> None:
    with closing(Ledger(pooled_url)) as ledger:
        subscription = ledger.listen("analyse")
        subscription.close()

        assert not subscription.wait(60)


def test_a_stage_with_a_direct_url_is_notified_by_a_commit_behind_the_pooler(
    pooled_url: str, direct_url: str
) -> None:
    clock = Clock()
    with closing(Ledger(pooled_url, clock, direct_url)) as ledger:
        subscription = ledger.listen("analyse")
        Street(ledger, clock).receive("1.2.3", 1)

        assert subscription.wait(60)
        subscription.close()


def test_an_empty_database_is_migrated_behind_a_pooler(bouncer: str, postgres_url: str) -> None:
    empty = through(bouncer, fresh_database(postgres_url))

    assert migrate(empty) == expected_revision()


def test_a_rewrite_behind_a_pooler_leaves_no_setting_to_other_clients(pooled_url: str) -> None:
    assert vacuum.rewrite(pooled_url)

    engine = open_engine(pooled_url)
    with engine.begin() as one, engine.begin() as two:
        found = [each.execute(text("SHOW lock_timeout")).scalar() for each in (one, two)]
    engine.dispose()
    assert found == ["0", "0"]


def _settings(url: str, direct_url: str = "") -> Settings:
    return Settings.model_validate({"ledger": {"url": url, "direct_url": direct_url}})


def test_check_finds_a_pooler_without_a_direct_url(pooled_url: str) -> None:
    (found,) = ledger_connections(_settings(pooled_url))

    assert not found.ok
    assert "pooler" in found.detail
    assert "ledger.direct_url" in found.advice


def test_check_finds_a_pooler_with_a_direct_url_that_notifies(
    pooled_url: str, direct_url: str
) -> None:
    (found,) = ledger_connections(_settings(pooled_url, direct_url))

    assert found.ok
    assert "pooler" in found.detail


def test_check_finds_a_direct_url_of_another_database(pooled_url: str, postgres_url: str) -> None:
    other = migrated_postgres(postgres_url)

    (found,) = ledger_connections(_settings(pooled_url, other))

    assert not found.ok
    assert "another database" in found.advice


def test_check_finds_postgresql_itself(direct_url: str) -> None:
    (found,) = ledger_connections(_settings(direct_url))

    assert found.ok
    assert "pooler" not in found.detail


def test_a_notifier_listens_on_the_direct_url_alone(pooled_url: str, direct_url: str) -> None:
    notifier = notifier_for(pooled_url, direct_url)
    engine = open_engine(pooled_url)
    subscription = notifier.listen("check")
    with engine.begin() as connection:
        notifier.notify_in(connection, ("check",))
    engine.dispose()

    assert subscription.wait(60)
    subscription.close()
