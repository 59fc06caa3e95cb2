"""No clock deletes anything alone.

What is further ahead than plausible moves nothing until a person has said which day it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hilum.domain import AssociationRecord
from hilum.settings import Retention, Settings
from hilum.store.archive.archive import Archive
from hilum.store.installation import known_time, values
from hilum.store.installation.known_time import PLAUSIBLE_SECONDS, Believed, WrongDay, confirm
from hilum.store.ledger import Ledger
from hilum.store.queries.retention import RetentionState
from hilum.store.queries.views import LedgerViews
from hilum.store.schema import tables
from hilum.supervisor.checks.retention import retention_checks
from hilum.supervisor.housekeeping import Housekeeper
from tests.support.ledger.database import change, transaction
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street

DAY = 86400.0
NOW = time.time()


class Site:
    """A ledger, an archive and who keeps house; its time is `then`, and nobody has set a clock."""

    def __init__(self, url: str, folder: Path, then: float) -> None:
        retention = Retention(days=30, association_days=30)
        self.settings = Settings(
            site={"state_dir": folder},
            ledger={"url": url},
            receive={"reserve_bytes": 0},
            retention=retention,
        )
        Archive(self.settings.archive_dir).make()
        self.clock = Clock(then)
        self.ledger = Ledger(url, self.clock)
        self.street = Street(self.ledger, self.clock)
        self.remember(then)

    def remember(self, moment: float) -> None:
        """The known time."""
        with transaction(self.ledger) as connection:
            known_time._write(connection, Believed(moment, moment))

    def walk(self, study: str) -> Path:
        """A study of one image that is received, read and delivered."""
        file = self.settings.archive_dir / "studies" / f"{study}.1.dcm"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(1000))
        self.street.walk(study, 1)
        return file

    def state(self) -> RetentionState:
        with contextlib.closing(LedgerViews(self.settings.ledger_url)) as views:
            return views.retention_state()

    def problems(self) -> set[str]:
        return {check.name for check in retention_checks(self.settings) if not check.ok}


def site_of(url: str, folder: Path, then: float) -> Iterator[Site]:
    made = Site(url, folder, then)
    yield made
    made.ledger.close()


@pytest.fixture
def off_for_a_month(ledger_url: str, tmp_path: Path) -> Iterator[Site]:
    """The clock, which on PostgreSQL is the database's, is 31 days ahead of all that the ledger knows."""
    yield from site_of(ledger_url, tmp_path / "state", NOW - 31 * DAY)


def turn(site: Site, *more: object) -> None:
    keeper = Housekeeper(site.settings, *more)  # type: ignore[arg-type]
    keeper.turn()
    keeper.stop()


def test_a_clock_that_is_a_month_ahead_deletes_nothing_and_it_is_said(
    off_for_a_month: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site = off_for_a_month
    file = site.walk("1.2.3")
    site.ledger.record_associations(
        [
            AssociationRecord(
                site.clock.now,
                site.clock.now,
                "10.0.0.7",
                "CR1",
                "HILUM",
                "released",
                None,
                1,
                0,
                None,
            )
        ]
    )
    for _ in range(2):
        turn(site)
    assert file.exists()
    assert len(site.street.rows(tables.association)) == 1
    assert [row.pixels_removed_at for row in site.street.rows(tables.instance)] == [None]
    assert "clock_not_believed" in "".join(capsys.readouterr())
    assert site.state().held == {"clock": True, "hour": False}
    assert site.problems() == {"known time"}


def test_pressure_asks_no_clock(off_for_a_month: Site) -> None:
    """What has come since the clock jumped may leave, too, or reception would end."""
    site = off_for_a_month
    turn(site)
    site.clock.now = time.time() + 31 * DAY
    file = site.walk("1.2.3")
    free = Archive(site.settings.archive_dir).free().bytes
    site.settings = site.settings.model_copy(
        update={"retention": Retention(pressure_free_bytes=free + (1 << 30))}
    )
    turn(site)
    assert not file.exists()


def test_a_host_whose_own_clock_is_wrong_deletes_nothing(ledger_url: str, tmp_path: Path) -> None:
    """On PostgreSQL nobody asks it: all hosts go by the database's."""
    for site in site_of(ledger_url, tmp_path / "state", NOW - 60):
        file = site.walk("1.2.3")
        turn(site, lambda: time.time() + 31 * DAY)
        assert file.exists()
        assert site.state().held["clock"] is ledger_url.startswith("sqlite")


def test_a_person_who_says_which_day_it_is_lets_it_go_on(off_for_a_month: Site) -> None:
    site = off_for_a_month
    file = site.walk("1.2.3")
    turn(site)
    with pytest.raises(WrongDay):
        confirm(site.settings.ledger_url, "2001-01-01")
    turn(site)
    assert file.exists()
    confirm(site.settings.ledger_url, datetime.now(UTC).strftime("%Y-%m-%d"))
    turn(site)
    assert not file.exists()
    assert site.state().held["clock"] is False
    assert site.problems() == set()


def test_one_that_is_found_behind_is_said_and_deletes_later(
    ledger_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for site in site_of(ledger_url, tmp_path / "state", NOW - 10):
        site.remember(NOW + 400 * DAY)  # a person has confirmed a clock that was wrong
        file = site.walk("1.2.3")
        turn(site)
        assert file.exists()
        assert "clock_behind" in "".join(capsys.readouterr())
        assert site.problems() == {"known time"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """On SQLite, where the clock is ours."""
    (tmp_path / "state").mkdir()
    yield from site_of(migrated_sqlite(tmp_path / "state"), tmp_path / "state", NOW)


class Machine:
    """Its clock, which can be set, and its counter, which cannot."""

    def __init__(self, site: Site) -> None:
        self.clock, self.counter = site.clock, Clock(1000.0)
        self.keeper = Housekeeper(site.settings, self.clock, self.counter)
        self.run(0)

    def run(self, seconds: float) -> None:
        """Time goes by, and somebody keeps house."""
        self.clock.now += seconds
        self.counter.now += seconds
        self.keeper.turn()


def test_with_a_clock_that_runs_images_leave_in_their_time(site: Site) -> None:
    machine, old = Machine(site), site.walk("1.2.3")
    machine.run(15 * DAY)
    young = site.walk("1.2.4")
    machine.run(14.9 * DAY)
    assert (old.exists(), young.exists()) == (True, True)
    machine.run(0.2 * DAY)
    assert (old.exists(), young.exists()) == (False, True)
    machine.keeper.stop()


def test_after_a_long_time_without_power_images_age_as_fast_as_the_machine_runs(site: Site) -> None:
    machine, file = Machine(site), site.walk("1.2.3")
    machine.run(20 * DAY)
    machine.keeper.stop()
    site.clock.now += 60 * DAY
    again = Machine(site)
    again.run(9.9 * DAY)
    assert file.exists()
    again.run(0.2 * DAY)
    assert not file.exists()
    again.keeper.stop()


@pytest.mark.parametrize("hours", [1, 5.9])
def test_an_upgrade_and_a_clock_that_was_corrected_hold_nothing_up(
    site: Site, hours: float
) -> None:
    machine, file = Machine(site), site.walk("1.2.3")
    machine.run(29.9 * DAY)
    machine.keeper.stop()
    site.clock.now += hours * 3600
    again = Machine(site)
    assert (file.exists(), site.state().held["clock"]) == (hours < 2.4, False)
    again.keeper.stop()


def test_a_clock_that_runs_away_in_small_steps_gains_a_few_hours_in_all(site: Site) -> None:
    machine, file = Machine(site), site.walk("1.2.3")
    for _ in range(40):
        site.clock.now += DAY - 4
        machine.run(4)
    assert file.exists()
    assert machine.keeper._time.now() - NOW < PLAUSIBLE_SECONDS + 600
    machine.keeper.stop()


def test_superseded_files_wait_by_the_same_time(site: Site) -> None:
    machine, file = Machine(site), site.walk("1.2.3")
    change(
        site.ledger,
        tables.expired_file.insert().values(
            path="studies/1.2.3.1.dcm", cause="superseded", due_at=NOW + 3600, instance_id=9
        ),
    )
    machine.run(0)
    site.clock.now += 31 * DAY
    machine.run(60)
    assert file.exists()
    machine.run(3600)
    assert not file.exists()
    machine.keeper.stop()


@pytest.mark.parametrize(("days", "expected"), [(3, 3.0), (40, 0.0)])
def test_an_upgrade_begins_with_the_clock_where_rows_bear_it_out(
    site: Site, days: float, expected: float
) -> None:
    site.walk("1.2.3")
    received_at = site.street.rows(tables.instance)[0].received_at
    with transaction(site.ledger) as connection:
        connection.exec_driver_sql("DELETE FROM installation WHERE key = 'known_time'")
        known_time.mint(connection, received_at + days * DAY)
        found = values.read(connection, "known_time")
    assert found is not None
    assert found["moment"] == received_at + expected * DAY
