"""Clocks of hosts that differ are said, by the supervisor and by `hilum check`.

A ledger in SQLite has but one host.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hilum.settings import LedgerSection as LedgerSettings
from hilum.settings import Settings, Site
from hilum.store.database.clocks import ahead_seconds
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.supervisor.checks.hosts import clock
from hilum.supervisor.clock_monitor import ClockMonitor
from tests.support.ledger.ledgers import migrated_sqlite


@pytest.mark.parametrize("error_seconds", [130.0, 0.0, -130.0])
def test_a_clock_that_differs_is_a_problem_and_one_that_agrees_is_none(
    ledger_url: str, tmp_path: Path, error_seconds: float
) -> None:
    settings = Settings(site=Site(state_dir=tmp_path), ledger=LedgerSettings(url=ledger_url))
    (check,) = clock(settings, lambda: time.time() + error_seconds)
    if ledger_url.startswith("sqlite"):
        assert check.ok, "no heartbeat lies in the future"
        return
    assert check.ok is (error_seconds == 0.0)
    if error_seconds:
        assert (
            check.detail
            == f"this host's clock is 130 s {'ahead of' if error_seconds > 0 else 'behind'} the"
            " ledger's"
        )


def test_the_tolerance_is_a_setting(ledger_url: str, tmp_path: Path) -> None:
    section = LedgerSettings(url=ledger_url, clock_tolerance_seconds=30)
    settings = Settings(site=Site(state_dir=tmp_path), ledger=section)
    (check,) = clock(settings, lambda: time.time() + 20)
    assert check.ok


def test_a_clock_that_was_set_back_shows_beside_the_last_heartbeat(tmp_path: Path) -> None:
    settings = Settings(site=Site(state_dir=tmp_path))
    ledger = Ledger(migrated_sqlite(tmp_path))
    ledger.beat("a", "listener", 1, started_at=1.0, is_ready=True)
    ledger.close()
    (check,) = clock(settings, lambda: time.time() - 3600)
    assert (check.ok, "in the future: the clock was set back" in check.detail) == (False, True)


def test_how_long_the_question_takes_is_no_difference(ledger_url: str) -> None:
    engine, now = open_engine(ledger_url), time.time()
    moments = iter((now - 50, now + 50))
    assert ahead_seconds(engine, lambda: next(moments)) == 0.0
    engine.dispose()


def test_the_supervisor_says_it_once_and_once_that_it_is_over(
    ledger_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, right, watch = (
        Ledger(ledger_url, lambda: time.time() - 30),
        Ledger(ledger_url),
        ClockMonitor(),
    )
    for ledger in (wrong, wrong, right, right):
        watch._next_look = 0.0
        watch.look(ledger)
    watch.look(wrong)  # not yet again
    for ledger in (wrong, right):
        ledger.close()
    said = "".join(capsys.readouterr())
    expected = 0 if ledger_url.startswith("sqlite") else 1
    assert (said.count("clock_differs"), said.count("clock_agrees")) == (expected, expected)
