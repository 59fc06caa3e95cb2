"""A PostgreSQL that takes no writes is named, by `hilum check` and in readiness."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from hilum.api.readiness import checks
from hilum.api.status import Observer
from hilum.settings import LedgerSection, Settings, Site
from hilum.store.database.engines import READ_ONLY
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.ledger import ledger_server, ledger_tls


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


def test_where_the_server_is_not_verified_is_said(tmp_path: Path) -> None:
    """Without a connection: the files of TLS are looked at before the ledger is."""

    def said(words: str, host: str = "db.hospital.test") -> list[str]:
        url = f"postgresql+psycopg://hilum@{host}/hilum{words}"
        settings = Settings(site=Site(state_dir=tmp_path), ledger=LedgerSection(url=url))
        return [check.detail for check in ledger_tls(settings)]

    assert said("") == [
        "sslmode=prefer does not verify the server: verify-full with sslrootcert does"
    ]
    assert said("?sslmode=verify-full") == []
    assert said("", "localhost") == []
