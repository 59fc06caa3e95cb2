"""Back-pressure: associations are rejected before the disk is full or the queue too long, and the answer says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import Priority
from hilum.receive.indexing.indexer import Indexer
from hilum.receive.policy.watermarks import Watermarks
from hilum.receive.statuses import OutOfResources
from hilum.receive.storage.image_store import ImageStore
from hilum.services.ingest import ThrottledNotice
from hilum.settings import Receive, Settings
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.machine.disks import dead_disk, small_disk

MIB = 1 << 20


def test_a_wait_is_said_when_it_begins_and_then_hourly() -> None:
    clock, said = Clock(0.0), []
    waits = ThrottledNotice(said.append, clock)
    for _ in range(720):  # an hour, by two threads
        waits.say(f"{int(clock.now)} MiB of disk are free")
        waits.say("the archive cannot be written")
        clock.now += 5
    assert said == ["0 MiB of disk are free", "the archive cannot be written"]
    waits.say("7 MiB of disk are free")
    clock.now += 120
    waits.say("8 MiB of disk are free")
    assert said[2:] == ["7 MiB of disk are free", "8 MiB of disk are free"], "it went on in between"


@pytest.mark.parametrize("look_seconds", [5.02, 30.1])
def test_a_wait_is_one_also_when_each_look_takes_its_time(look_seconds: float) -> None:
    """A ledger that is away: PostgreSQL's host swallows packets, or another process holds SQLite's lock."""
    clock, said = Clock(0.0), []
    waits = ThrottledNotice(said.append, clock)
    while clock.now < 3500:
        waits.say("the ledger does not answer")
        clock.now += 5.0 + look_seconds
    assert len(said) == 1


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    clock = Clock()
    ledger = Ledger(migrated_sqlite(tmp_path), clock)
    yield Street(ledger, clock)
    ledger.close()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with small_disk(tmp_path / "disk", 8) as folder:
        yield folder


def watermarks(folder: Path, street: Street, **settings: int | None) -> Watermarks:
    return Watermarks(Receive(**settings), Archive(folder), LedgerViews(street.ledger.url))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reserve", "reject", "effective"),
    [(100, None, 200), (100, 150, 150), (100, 0, 100), (100, 50, 100), (0, None, 0), (0, 70, 70)],
)
def test_the_soft_watermark_is_never_below_the_hard_one(
    reserve: int, reject: int | None, effective: int
) -> None:
    assert Receive(reserve_bytes=reserve, reject_bytes=reject).reject_below_bytes == effective


def test_a_full_disk_rejects_before_it_refuses(tiny_disk: Path, street: Street) -> None:
    found = watermarks(tiny_disk, street, reserve_bytes=MIB, reject_bytes=4 * MIB)
    assert found.rejection() is None
    (tiny_disk / "fill").write_bytes(b"x" * 5 * MIB)
    rejection = found.rejection()
    assert rejection is not None
    assert (rejection.result, rejection.source, rejection.diagnostic) == (2, 3, 2)
    assert rejection.reason == "disk_nearly_full"
    assert "3 MiB of disk are free, 4 MiB are wanted" in rejection.advice
    (tiny_disk / "fill").unlink()
    assert found.rejection() is None


def test_a_disk_that_can_hold_few_files_more_rejects_before_it_refuses(
    tmp_path: Path, street: Street
) -> None:
    with small_disk(tmp_path / "disk", 8, inodes=260) as folder:
        found = watermarks(folder, street, reserve_bytes=0, reserve_files=50)
        assert found.rejection() is None
        fill_inodes(folder, leave=99)
        rejection = found.rejection()
        assert rejection is not None
        assert (rejection.reason, (rejection.result, rejection.source, rejection.diagnostic)) == (
            "disk_nearly_full",
            (2, 3, 2),
        )
        assert "99 inodes are free, 100 are wanted" in rejection.advice
        intake = ImageStore(
            Receive(reserve_bytes=0, reserve_files=50),
            archive := Archive(folder),
            indexer_of(archive, street),
        )
        assert intake.require_room(1) > 0, "what is open may finish"
        fill_inodes(folder, leave=49)
        with pytest.raises(OutOfResources, match="nearly full"):
            intake.require_room(1)


def fill_inodes(folder: Path, leave: int) -> None:
    while os.statvfs(folder).f_favail > leave:
        (folder / f"{os.statvfs(folder).f_favail}.empty").touch()


def indexer_of(archive: Archive, street: Street) -> Indexer:
    return Indexer(Settings(), street.ledger, archive)


def test_without_a_mount_a_watermark_above_the_disk_does_the_same(
    tmp_path: Path, street: Street
) -> None:
    rejection = watermarks(tmp_path, street, reserve_bytes=0, reject_bytes=1 << 60).rejection()
    assert rejection is not None
    assert rejection.reason == "disk_nearly_full"


def test_a_long_queue_rejects_and_reanalysis_does_not_count(tmp_path: Path, street: Street) -> None:
    street.receive("1.2.3", 1, 2, 3, priority=Priority.REANALYSIS)
    street.receive("1.2.4", 1)
    limits = {"reserve_bytes": 0, "maximum_due_readings": 2}
    assert watermarks(tmp_path, street, **limits).rejection() is None
    street.receive("1.2.4", 2)
    rejection = watermarks(tmp_path, street, **limits).rejection()
    assert rejection is not None
    assert rejection.reason == "queue_full"
    assert "receive.maximum_due_readings" in rejection.advice
    street.read()
    assert watermarks(tmp_path, street, **limits).rejection() is None


def test_a_ledger_that_is_away_rejects_nobody(tmp_path: Path, street: Street) -> None:
    views = LedgerViews(f"sqlite:///{tmp_path / 'gone.sqlite'}")
    assert (
        Watermarks(
            Receive(reserve_bytes=0, maximum_due_readings=1), Archive(tmp_path), views
        ).rejection()
        is None
    )


def test_a_dead_mount_rejects_and_says_so(tmp_path: Path, street: Street) -> None:
    found = watermarks(tmp_path, street)
    with dead_disk(tmp_path):
        rejection = found.rejection()
    assert rejection is not None
    assert (rejection.result, rejection.source, rejection.diagnostic) == (2, 3, 2)
    assert rejection.reason == "archive_not_available"
    assert "Transport endpoint is not connected" in rejection.advice
    assert str(tmp_path) not in rejection.advice


def test_without_a_mount_an_archive_that_cannot_be_resolved_does_the_same(
    tmp_path: Path, street: Street
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    rejection = watermarks(tmp_path / "loop", street).rejection()
    assert rejection is not None
    assert rejection.reason == "archive_not_available"
