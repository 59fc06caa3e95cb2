"""Objects in a store and their rows: no row names bytes that another host cannot read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from hilum.receive.headers.patient import Patient
from hilum.receive.indexing.indexer import Indexer
from hilum.receive.indexing.recovery import recover
from hilum.services.erase import erase
from hilum.services.image_decisions import open_decisions
from hilum.services.recover import orphans_of, recover_orphans
from hilum.store.admin.backup import back_up
from hilum.store.archive.archive import place_of, quarantine_path
from hilum.store.archive.store_errors import StoreAway
from hilum.store.ledger import RecordOutcome
from hilum.store.retention.policy import RetentionPolicy
from hilum.supervisor.housekeeping import Housekeeper
from testing.network.scripted_s3 import ScriptedS3, scripted_s3
from tests.support.ledger.storing import data_set
from tests.support.machine.waiting import wait_for
from tests.support.server.store_site import PREFIX, StoreSite

HOUR = 3600.0
OTHER_PIXELS = b"\x01" * 16384


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with scripted_s3() as started:
        yield started


@pytest.fixture
def site(server: ScriptedS3, tmp_path: Path) -> Iterator[StoreSite]:
    made = StoreSite(server, tmp_path / "state")
    yield made
    made.ledger.close()


def test_a_row_waits_until_its_object_is_in_the_store(site: StoreSite) -> None:
    file = site.receive("1.2.3.1")
    site.server.fail("PUT", "denied")
    with pytest.raises(StoreAway):
        site.index(file)
    assert site.rows("SELECT path FROM instance") == []
    assert file.exists()
    site.server.mend()
    assert site.index(file) == [RecordOutcome.NEW]
    assert site.rows("SELECT path FROM instance") == [(place_of(file),)]
    assert site.stored() == {place_of(file)}
    assert not file.exists()


def test_an_object_that_was_put_before_a_crash_is_not_put_twice(site: StoreSite) -> None:
    file = site.receive("1.2.3.1")
    site.archive.place_all([file])
    outcomes = recover(site.settings, site.ledger, site.archive).outcomes
    assert outcomes == {RecordOutcome.NEW: 1}
    assert site.stored() == {place_of(file)}


def test_a_crash_between_row_and_settling_leaves_one_object(site: StoreSite) -> None:
    file = site.receive("1.2.3.1")
    content = file.read_bytes()
    site.index(file)
    file.write_bytes(content)  # as if it had not been deleted
    recover(site.settings, site.ledger, site.archive)
    assert not file.exists()
    assert site.stored() == {place_of(file)}


def test_a_store_that_is_away_refuses_no_objects_and_rows_follow(site: StoreSite) -> None:
    site.server.fail("PUT", "denied")
    indexer = Indexer(
        site.settings, site.ledger, site.archive, maximum_backlog=1, patience_seconds=0.001
    )
    indexer.start()
    for number in range(3):
        indexer.put(site.receive(f"1.2.3.{number}"))
    wait_for(lambda: site.archive.problem, what="a failed upload")
    assert not indexer.is_overloaded
    site.server.mend()
    wait_for(lambda: len(site.rows("SELECT id FROM instance")) == 3, what="the rows")
    indexer.stop(10.0)
    assert list(site.archive.unindexed()) == []
    assert len(site.stored()) == 3


def test_while_the_ledger_is_away_an_object_is_put_once_and_the_store_is_not_what_is_waited_for(
    site: StoreSite,
) -> None:
    file = site.receive("1.2.3.1")
    with sqlite3.connect(site.settings.site.state_dir / "ledger.sqlite") as ledger:
        ledger.execute("ALTER TABLE instance RENAME TO away")
    with pytest.raises(SQLAlchemyError):
        site.index(file)
    requests = site.server.requests.copy()
    busy_until = site.archive.busy_until
    with pytest.raises(SQLAlchemyError):
        site.index(file)
    assert site.server.requests == requests
    assert site.archive.busy_until == busy_until, "else the listener would never refuse"
    with sqlite3.connect(site.settings.site.state_dir / "ledger.sqlite") as ledger:
        ledger.execute("ALTER TABLE away RENAME TO instance")
    assert site.index(file) == [RecordOutcome.NEW]
    assert site.stored() == {place_of(file)}


def test_a_duplicate_leaves_no_second_object(site: StoreSite) -> None:
    first = site.receive("1.2.3.1")
    site.index(first)
    assert site.index(site.receive("1.2.3.1")) == [RecordOutcome.DUPLICATE]
    assert site.stored() == {place_of(first)}


def test_other_pixels_go_to_quarantine_in_the_store_and_come_back_by_decision(
    site: StoreSite,
) -> None:
    first = site.receive("1.2.3.1")
    site.index(first)
    second = site.receive("1.2.3.1", pixels=OTHER_PIXELS)
    assert site.index(second) == [RecordOutcome.CONFLICT]
    assert site.stored() == {place_of(first), quarantine_path(place_of(second))}
    ((conflict_id,),) = site.rows("SELECT id FROM conflict")
    with closing(open_decisions(site.settings)) as decisions:
        decisions.replace(int(str(conflict_id)))
    assert site.stored() == {quarantine_path(place_of(first)), place_of(second)}
    assert site.rows("SELECT path FROM instance") == [(place_of(second),)]


def test_a_discarded_conflict_leaves_the_store(site: StoreSite) -> None:
    first = site.receive("1.2.3.1")
    site.index(first)
    site.index(site.receive("1.2.3.1", pixels=OTHER_PIXELS))
    with closing(open_decisions(site.settings)) as decisions:
        decisions.discard(1)
    assert site.stored() == {place_of(first)}
    assert site.index(site.receive("1.2.3.1", pixels=OTHER_PIXELS)) == [RecordOutcome.DUPLICATE]


def test_a_corrected_header_replaces_the_object_and_retention_deletes_the_older_one(
    site: StoreSite,
) -> None:
    first = site.receive("1.2.3.1")
    site.index(first)
    second = site.receive("1.2.3.1", order=b"corrected")
    site.index(second)
    assert site.rows("SELECT path FROM instance") == [(place_of(second),)]
    assert site.stored() == {place_of(first), place_of(second)}
    later = time.time() + 2 * HOUR
    with closing(RetentionPolicy(site.ledger.url, site.archive, clock=lambda: later)) as retention:
        (removed,) = retention.remove_files()
    assert (removed.path, removed.problem) == (place_of(first), None)
    assert site.stored() == {place_of(second)}


def test_files_that_a_store_does_not_delete_now_are_tried_again(site: StoreSite) -> None:
    site.index(site.receive("1.2.3.1"))
    site.index(site.receive("1.2.3.1", order=b"corrected"))
    later = [time.time() + 2 * HOUR]
    with closing(
        RetentionPolicy(site.ledger.url, site.archive, clock=lambda: later[0])
    ) as retention:
        site.server.fail("POST", "denied", times=1)
        (removed,) = retention.remove_files()
        assert removed.problem is not None
        assert "object store" in removed.problem
        later[0] += 2 * HOUR
        assert [item.problem for item in retention.remove_files()] == [None]
    assert len(site.stored()) == 1


def test_an_object_that_the_store_has_lost_is_taken_from_the_next_copy(site: StoreSite) -> None:
    first = site.receive("1.2.3.1")
    site.index(first)
    del site.server.bucket[f"{PREFIX}/{place_of(first)}"]
    second = site.receive("1.2.3.1")
    site.index(second)
    assert site.stored() == {place_of(second)}
    assert site.rows("SELECT path FROM instance") == [(place_of(second),)]


def test_an_erasure_deletes_objects_and_those_in_quarantine(site: StoreSite) -> None:
    site.index(site.receive("1.2.3.1"))
    site.index(site.receive("1.2.3.1", pixels=OTHER_PIXELS))
    other = site.receive("1.2.9.1", study="1.2.9", patient_id=b"P2")
    site.index(other)
    report = erase(site.settings, Patient("P1", None))
    assert report.is_gone
    assert site.stored() == {place_of(other)}


def test_an_erasure_finds_the_patient_behind_a_long_element(site: StoreSite) -> None:
    site.index(site.receive("1.2.3.1", private=bytes(300_000)))
    site.index(site.receive("1.2.3.1", private=bytes(300_000), pixels=OTHER_PIXELS))
    erase(site.settings, Patient("P1", None))
    assert site.stored() == set()


def test_an_erasure_says_what_is_left_while_the_store_is_away(site: StoreSite) -> None:
    site.index(site.receive("1.2.3.1"))
    site.server.fail("POST", "denied")
    report = erase(site.settings, Patient("P1", None))
    assert (report.files_left, report.is_complete) == (1, False)
    assert "could not be deleted" in report.said(is_dry_run=False)


def test_each_host_takes_what_its_dead_listeners_left_in_its_spool(site: StoreSite) -> None:
    file = site.receive("1.2.3.1")
    left = site.archive.root / "unindexed/gone-listener-9"
    left.mkdir()
    file.rename(left / file.name)
    with closing(RetentionPolicy(site.ledger.url, site.archive)) as elsewhere:
        assert elsewhere.hold("the housekeeper of another host", 120.0)
        later = 90.0  # seconds after they died; the lease of the other host holds
        housekeeper = Housekeeper(site.settings, clock=lambda: time.time() + later)
        housekeeper.turn()
        housekeeper.stop()
    assert any("another host" in str(row) for row in site.rows("SELECT value FROM installation"))
    assert site.rows("SELECT path FROM instance") == [(place_of(file),)]
    assert site.stored() == {place_of(file)}


def test_hosts_that_share_a_spool_take_files_of_the_dead_once_and_leave_those_of_the_living(
    site: StoreSite,
) -> None:
    files = [site.receive(f"1.2.3.{number}") for number in range(1, 7)]
    for folder, some in (("gone-listener-9", files[:5]), ("other-listener-0", files[5:])):
        left = site.archive.root / "unindexed" / folder
        left.mkdir()
        for file in some:
            file.rename(left / file.name)
    keepers = [Housekeeper(site.settings, clock=lambda: time.time() + 90.0) for _ in range(2)]
    with site.archive.held("other-listener-0"), ThreadPoolExecutor(2) as hosts:
        list(hosts.map(lambda keeper: keeper.turn(), keepers))
    for keeper in keepers:
        keeper.stop()
    assert site.stored() == {place_of(file) for file in files[:5]}
    assert sorted(site.rows("SELECT path FROM instance")) == sorted(
        (place_of(file),) for file in files[:5]
    )


def test_an_object_without_a_row_gets_one_on_any_host(
    site: StoreSite, server: ScriptedS3, tmp_path: Path
) -> None:
    file = site.receive("1.2.3.1")
    site.archive.place_all([file])
    content = file.read_bytes()
    file.unlink()  # the host and its disk are gone
    assert content.endswith(data_set("1.2.3.1"))
    found = orphans_of(site.settings)
    assert [place_of(path) for path in found] == [place_of(file)]
    assert recover_orphans(site.settings, found) == {RecordOutcome.NEW: 1}
    assert site.stored() == {place_of(file)}


def test_a_backup_copies_the_ledger_and_the_spool_and_leaves_the_store(
    site: StoreSite, tmp_path: Path
) -> None:
    site.index(site.receive("1.2.3.1"))
    waiting = site.receive("1.2.3.2")
    put = back_up(site.ledger.url, site.archive, tmp_path / "copy")
    assert sum(put.values()) == 1
    copied = [file.name for file in (tmp_path / "copy").rglob("*.dcm")]
    assert copied == [waiting.name]
    assert (tmp_path / "copy/ledger.sqlite").exists()
