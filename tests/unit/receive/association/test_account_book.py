"""Rows of associations: few for those that stored nothing, none lost while the ledger is away, and a loss that is counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hilum.domain import AssociationRecord
from hilum.observability import telemetry
from hilum.receive.policy import record_writer
from hilum.receive.policy.association_counts import WINDOW_SECONDS, AssociationCounts
from hilum.receive.policy.record_writer import AssociationRecordWriter
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from tests.support.machine.waiting import wait_for
from tests.support.server.listening import make_settings


def record(
    address: str = "192.0.2.1",
    title: str = "STRANGER",
    outcome: str = "rejected",
    reason: str | None = "unknown",
    stored: int = 0,
) -> AssociationRecord:
    return AssociationRecord(
        1.0, 2.0, address, title, "HILUM", outcome, reason, stored, 1, "Change it."
    )


def counted(counts: AssociationCounts) -> list[tuple[str, str, int]]:
    return [
        (row.record.peer_address, row.record.calling_ae_title, row.record.count)
        for row in counts.unwritten()
    ]


def test_the_same_again_within_a_minute_is_counted_in_one_row() -> None:
    counts = AssociationCounts()
    for second in range(50):
        assert counts.add(record(), float(second))
    (row,) = counts.unwritten()
    assert (row.record.count, row.record.refused) == (50, 50)


def test_the_next_minute_has_a_row_of_its_own_and_what_is_written_is_forgotten() -> None:
    counts = AssociationCounts()
    counts.add(record(), 0.0)
    (first,) = counts.unwritten()
    counts.written(first, first.record, 7)
    counts.add(record(), WINDOW_SECONDS)
    assert counted(counts) == [("192.0.2.1", "STRANGER", 1)]
    assert counts.end_minutes(WINDOW_SECONDS) == {"192.0.2.1": {"unknown": 1}}
    assert counts.end_minutes(WINDOW_SECONDS) == {}, "said once"


def test_a_row_grows_when_more_is_counted_while_it_is_written() -> None:
    counts = AssociationCounts()
    counts.add(record(), 0.0)
    (row,) = counts.unwritten()
    before = row.record
    counts.add(record(), 1.0)
    counts.written(row, before, 7)
    assert [(row.row_id, row.record.count) for row in counts.unwritten()] == [(7, 2)]


def test_a_stranger_with_ten_thousand_titles_has_few_rows_and_all_are_counted() -> None:
    counts = AssociationCounts()
    for number in range(10_000):
        counts.add(record(title=f"T{number}"), 0.0)
    assert len(counts.unwritten()) <= 65
    assert sum(count for _, _, count in counted(counts)) == 10_000


def test_advice_that_quotes_the_peer_makes_no_rows_but_that_of_a_handshake_does() -> None:
    counts = AssociationCounts()
    for number in range(1000):
        quoting = replace(
            record(outcome="released", reason=None),
            advice=f"SOP Classes not accepted: 1.2.{number}.",
        )
        counts.add(quoting, 0.0)
    for advice in ("It showed no certificate.", "It is no TLS."):
        counts.add(replace(record(outcome="tls_failed", reason=None), advice=advice), 0.0)
    assert sorted(row.record.count for row in counts.unwritten()) == [1, 1, 1000]


def test_ten_thousand_addresses_have_few_rows_and_all_are_counted() -> None:
    counts = AssociationCounts()
    for number in range(10_000):
        counts.add(record(address=f"198.51.{number >> 8}.{number & 255}", title=f"T{number}"), 0.0)
    assert len(counts.unwritten()) <= 257
    assert sum(count for _, _, count in counted(counts)) == 10_000


def test_a_ledger_that_is_away_for_days_costs_bounded_memory() -> None:
    counts = AssociationCounts()
    taken = [
        counts.add(record(title=f"T{number % 50}"), WINDOW_SECONDS * (number // 50))
        for number in range(10_000)
    ]
    assert taken.count(False) > 0
    assert len(counts.unwritten()) <= 4096


@contextmanager
def book(tmp_path: Path) -> Iterator[tuple[AssociationRecordWriter, LedgerViews, Path]]:
    settings = make_settings(tmp_path / "state")
    ledger, views = Ledger(settings.ledger_url), LedgerViews(settings.ledger_url)
    opened = AssociationRecordWriter(ledger)
    opened.start()
    try:
        yield opened, views, tmp_path / "state" / "ledger.sqlite"
    finally:
        opened.stop(5.0)
        views.close()
        ledger.close()


def test_rows_come_soon_and_grow(tmp_path: Path) -> None:
    with book(tmp_path) as (accounts, views, _):
        for _ in range(20):
            accounts.put(record())
            accounts.put(record(outcome="released", title="CR1", stored=1))
        wait_for(
            lambda: sum(row["count"] for row in views.associations()[0]) == 40, what="the rows"
        )
        accounts.put(record())
        wait_for(
            lambda: sum(row["count"] for row in views.associations()[0]) == 41, what="one more"
        )
        by_title = [row["calling_ae_title"] for row in views.associations()[0]]
    assert (by_title.count("STRANGER"), by_title.count("CR1")) == (1, 20)


def test_rows_survive_a_ledger_that_takes_nothing_for_a_while(tmp_path: Path) -> None:
    with capture_logs() as logs, book(tmp_path) as (accounts, views, file):
        with sqlite3.connect(file) as away:
            away.execute("ALTER TABLE association RENAME TO gone")
        for number in range(30):
            accounts.put(record(title=f"T{number}"))
            accounts.put(record(outcome="released", title=f"S{number}", stored=1))
        wait_for(
            lambda: any(line["event"] == "associations_not_recorded" for line in logs),
            what="a try that failed",
        )
        with sqlite3.connect(file) as back:
            back.execute("ALTER TABLE gone RENAME TO association")
        wait_for(lambda: len(views.associations(limit=100)[0]) == 60, what="all rows")
    assert [line["event"] for line in logs].count("associations_not_recorded") == 1, (
        "said once, however often it was tried"
    )
    assert not any(line["event"] == "associations_lost" for line in logs)


def test_what_is_lost_is_counted_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "_MAXIMUM_WAITING", 10)
    before = telemetry.ASSOCIATION_ROWS_LOST._value.get()
    with capture_logs() as logs, book(tmp_path) as (accounts, _, file):
        with sqlite3.connect(file) as away:
            away.execute("ALTER TABLE association RENAME TO gone")
        for number in range(30):
            accounts.put(record(outcome="released", title=f"S{number}", stored=1))
        accounts.put(record())
    assert telemetry.ASSOCIATION_ROWS_LOST._value.get() - before == 31
    assert sum(line["count"] for line in logs if line["event"] == "associations_lost") == 31


def test_one_line_of_the_log_tells_of_an_address(tmp_path: Path) -> None:
    with capture_logs() as logs, book(tmp_path) as (accounts, _, _file):
        for number in range(40):
            accounts.put(record(title=f"T{number}"))
        accounts.put(record(outcome="released", reason="", title="ECHO"))
    (line,) = [line for line in logs if line["event"] == "associations_refused"]
    assert (line["address"], line["count"], line["reasons"]) == ("192.0.2.1", 40, {"unknown": 40})
    assert "T1" not in str(line)
