"""A PostgreSQL that takes no writes is named, by `hilum check` and in readiness."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from hilum.api.readiness import checks
from hilum.api.status import Observer
from hilum.settings import LedgerSection, Settings, Site
from hilum.store.database.engines import READ_ONLY
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.ledger import ledger_server


def set_read_only(url: str) -> None:
    """As on a standby: each transaction of a new connection refuses writes."""
    engine = create_engine(url)
    with engine.begin() as connection:
        name = make_url(url).database
        connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
    engine.dispose()


def test_a_ledger_that_takes_no_writes_is_named(ledger_url: str, tmp_path: Path) -> None:
    settings = Settings(site=Site(state_dir=tmp_path), ledger=LedgerSection(url=ledger_url))
    before = list(ledger_server(settings))
    if ledger_url.startswith("sqlite"):
        assert before == []
        return
    assert [check.ok for check in before] == [True]
    set_read_only(ledger_url)
    (check,) = ledger_server(settings)
    assert (check.ok, check.detail) == (False, READ_ONLY)
    assert "target_session_attrs=read-write" in check.advice
    views = LedgerViews(ledger_url)
    facts = Observer(settings, views, lambda: 0.0).facts()
    views.close()
    (ledger,) = (item for item in checks("receive", facts) if item.name == "ledger")
    assert (ledger.ok, ledger.detail) == (False, READ_ONLY)
