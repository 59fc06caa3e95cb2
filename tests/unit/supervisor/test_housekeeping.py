"""The housekeeper's turns: by age, under pressure, and never on something that is no archive."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from structlog.testing import capture_logs

from hilum.domain import AssociationRecord, Priority
from hilum.errors import ConfigurationError
from hilum.observability import telemetry
from hilum.settings import Retention, Settings, load
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.retention import policy
from hilum.store.schema import tables
from hilum.supervisor.housekeeping import Housekeeper, outdated, rules
from tests.support.ledger.database import transaction
from tests.support.ledger.street import Clock, Street
from tests.support.machine.waiting import wait_for
from tests.support.server.listening import make_settings

MIB = 1 << 20
_OPENED: list[Ledger] = []


@pytest.fixture(autouse=True)
def opened() -> Iterator[list[Ledger]]:
    """Ledgers that are closed behind a test."""
    yield _OPENED
    while _OPENED:
        _OPENED.pop().close()


def installation(folder: Path, **retention: float) -> tuple[Settings, Street]:
    settings = make_settings(folder / "state")
    settings = settings.model_copy(update={"retention": Retention(**retention)})  # type: ignore[arg-type]
    clock = Clock(time.time() - 1000)
    _OPENED.append(Ledger(settings.ledger_url, clock))
    return settings, Street(_OPENED[-1], clock)


def store(settings: Settings, study: str, size: int = 1000) -> Path:
    file = settings.archive_dir / "studies" / f"{study}.1.dcm"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(bytes(size))
    return file


def test_the_default_keeps_everything() -> None:
    assert list(rules(Retention(), 1e9)) == []


def test_each_priority_has_its_rule() -> None:
    live, again = rules(Retention(days=2, reanalysis_days=1), 10 * 86400.0)
    assert (set(live.priorities), live.finished_before) == (
        {Priority.URGENT, Priority.LIVE},
        8 * 86400.0,
    )
    assert (set(again.priorities), again.finished_before) == ({Priority.REANALYSIS}, 9 * 86400.0)


def test_a_turn_removes_what_is_old_enough(tmp_path: Path) -> None:
    settings, street = installation(tmp_path, days=500 / 86400)
    old, young = store(settings, "1.2.3"), store(settings, "1.2.4")
    street.walk("1.2.3", 1)
    street.clock.now += 700
    street.walk("1.2.4", 1)
    keeper = Housekeeper(settings)
    keeper.turn()
    assert (old.exists(), young.exists()) == (False, True)
    keeper.stop()


def test_what_only_tells_what_has_been_is_kept_for_a_year_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    year = 365 * 86400.0
    assert dict(outdated(Retention(), 2 * year)) == {
        "associations": year,
        "commitments": year,
        "workitems": year,
        "asked_commitments": year,
        "processes": 2 * year - 86400,
    }
    short = dict(outdated(Retention(commitment_days=1), year))
    assert short["asked_commitments"] == year - 60 * 86400, "a report may be late"
    kept = Retention(association_days=0, commitment_days=0, workitem_days=0)
    assert [name for name, _ in outdated(kept, year)] == ["processes"]
    settings, street = installation(tmp_path, association_days=1)
    old, young = (time.time() - days * 86400 for days in (2, 0.5))
    peer = ("10.0.0.7", "CR1", "HILUM", "released", None, 1, 0, None)
    street.ledger.record_associations([AssociationRecord(at, at, *peer) for at in (old, young)])
    keeper = Housekeeper(settings)
    keeper.turn()
    keeper.stop()
    assert [row.started_at for row in street.rows(tables.association)] == [young]


def test_what_a_host_that_is_gone_has_left_is_forgotten_after_a_day(tmp_path: Path) -> None:
    settings, street = installation(tmp_path)
    for name, days in (("gone", 1.1), ("away", 0.9)):
        street.clock.now = time.time() - days * 86400
        street.beat(name, "analyser")
    archive = Archive(settings.archive_dir)
    for name in ("gone", "lives", "left", "young", "touched"):
        with archive.held(name):
            (settings.archive_dir / "unindexed" / name).mkdir(parents=True)
    (settings.archive_dir / "unindexed/left/1.dcm").touch()
    then = time.time() - 1.1 * 86400
    for path in settings.archive_dir.glob("*/*"):
        if not path.name.startswith("young") and path.name != "touched":
            os.utime(path, (then, then))
    keeper = Housekeeper(settings)
    with archive.held("lives") as is_ours:
        assert is_ours
        os.utime(settings.archive_dir / "locks/lives.lock", (then, then))
        keeper.turn()
    keeper.stop()
    assert [name for name, _ in street.ledger.silent(-1)] == ["away"]
    assert archive.processes() == ["left", "lives", "touched", "young"]
    assert not (settings.archive_dir / "locks/gone.lock").exists()


def test_pixels_that_are_kept_are_not_gone_through_at_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_LOOKED_AT", 2)
    monkeypatch.setattr(policy, "_PASSED_BY", 4)
    settings, street = installation(tmp_path, days=1 / 86400)
    for number in range(5):
        street.receive(f"1.2.{number}", 1, priority=Priority.REANALYSIS)
    file = store(settings, "1.3.1")
    street.walk("1.3.1", 1)
    keeper, asked = Housekeeper(settings), list[str]()
    event.listen(
        keeper._retention._reader, "before_cursor_execute", lambda *call: asked.append(call[2])
    )
    keeper.turn()
    assert file.exists()
    assert (
        len(
            [
                sql
                for sql in asked
                if "FROM instance" in sql.split("WHERE")[0] and "received_at" in sql
            ]
        )
        == 2
    )
    keeper.turn()
    assert not file.exists(), "the next turn went on behind those"
    keeper.stop()


def test_under_pressure_as_much_leaves_as_is_missing(tiny_disk: Path) -> None:
    settings, street = installation(tiny_disk, pressure_free_bytes=12 * MIB)
    files = [store(settings, f"1.2.{number}", 2 * MIB) for number in range(4)]
    for number in range(4):
        street.walk(f"1.2.{number}", 1)
    with transaction(
        street.ledger
    ) as connection:  # the ledger says 1000 bytes an image; this disk is small
        connection.exec_driver_sql(f"UPDATE instance SET size_bytes = {2 * MIB}")
    keeper = Housekeeper(settings)
    keeper.turn()
    kept = [file.exists() for file in files]
    assert kept == sorted(kept), "the oldest first"
    assert kept[0] is False
    assert kept[-1] is True
    assert keeper._archive.free().bytes >= 12 * MIB
    keeper.stop()


def test_without_an_archive_nothing_is_touched_and_nothing_forgotten(tmp_path: Path) -> None:
    settings, street = installation(tmp_path, days=1 / 86400)
    street.walk("1.2.3", 1)
    (settings.archive_dir / "locks").rmdir()  # as if its file system were not mounted
    keeper = Housekeeper(settings)
    keeper.turn()
    (settings.archive_dir / "locks").mkdir()
    with transaction(street.ledger) as connection:
        assert (
            connection.exec_driver_sql(
                "SELECT count(*) FROM instance WHERE pixels_removed_at IS NULL"
            ).scalar_one()
            == 1
        )
    keeper.stop()


def test_a_second_host_leaves_it_to_the_first(tmp_path: Path) -> None:
    settings, street = installation(tmp_path, days=1 / 86400)
    file = store(settings, "1.2.3")
    street.walk("1.2.3", 1)
    first, second = Housekeeper(settings), Housekeeper(settings)
    assert first._retention.hold("another host", 60)
    second.turn()
    assert file.exists()
    first.stop()
    second.stop()


def test_the_thread_works_by_itself_and_stops(tmp_path: Path) -> None:
    settings, street = installation(tmp_path, days=1 / 86400, check_seconds=0.05)
    file = store(settings, "1.2.3")
    street.walk("1.2.3", 1)
    keeper = Housekeeper(settings)
    keeper.look()
    keeper.look()
    wait_for(lambda: not file.exists(), what="the end of retention")
    (running,) = [thread for thread in threading.enumerate() if thread.name == "housekeeping"]
    keeper.stop()
    assert not running.is_alive()


def test_pixels_must_leave_before_associations_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("HILUM_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "hilum.toml"
    file.write_text("[retention]\npressure_free_bytes = 1000\n[receive]\nreserve_bytes = 600\n")
    with pytest.raises(
        ConfigurationError, match=r"hilum.toml: retention.pressure_free_bytes: must be above 1200"
    ):
        load(file)
    file.write_text("[retention]\npressure_free_bytes = 1300\n[receive]\nreserve_bytes = 600\n")
    assert load(file).retention.pressure_free_bytes == 1300


def test_a_turn_lets_rows_leave_after_their_pixels_and_exports_them(tmp_path: Path) -> None:
    month = 86400 * 365.25 / 12
    settings, street = installation(tmp_path, days=500 / 86400, row_months=600 / month)
    store(settings, "1.2.3")
    street.walk("1.2.3", 1)
    street.clock.now += 700
    store(settings, "1.2.4")
    street.walk("1.2.4", 1)
    keeper = Housekeeper(settings)
    before = _forgotten()

    keeper.turn()
    keeper.stop()

    assert [row.study_instance_uid for row in street.rows(tables.study)] == ["1.2.4"]
    assert len(list(settings.row_exports_dir.glob("studies-*"))) == 2
    assert _forgotten() == before + 1


def _forgotten() -> float:
    (family,) = telemetry.STUDIES_FORGOTTEN.collect()
    return family.samples[0].value


def test_rows_stay_and_the_log_says_so_when_no_export_can_be_written(
    tmp_path: Path,
) -> None:
    settings, street = installation(tmp_path, days=1e-6, row_months=1e-6)
    store(settings, "1.2.3")
    street.walk("1.2.3", 1)
    settings.row_exports_dir.write_text("a file in the place of the folder")
    keeper = Housekeeper(settings)

    with capture_logs() as logs:
        keeper.turn()
    keeper.stop()

    assert "rows_not_exported" in [line["event"] for line in logs]
    assert len(street.rows(tables.study)) == 1
