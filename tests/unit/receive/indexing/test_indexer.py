"""Acknowledged files become rows, whatever happens to the ledger meanwhile.

Requests are refused before anything is lost.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import resource
import sqlite3
import threading
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from pydicom.uid import DigitalXRayImageStorageForPresentation

from hilum.domain import Instance, Priority
from hilum.receive.association.admission import AdmissionControl
from hilum.receive.association.counter import CounterSlot, SharedAssociationCounter
from hilum.receive.association.pending_connections import PendingConnections
from hilum.receive.commitment.reporter import CommitmentReporter
from hilum.receive.commitment.safekeeping import Safekeeping
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.receive.headers import file_meta
from hilum.receive.indexing import indexer, missing_files
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.indexer import Indexer, index
from hilum.receive.indexing.recovery import recover
from hilum.receive.policy.association_policy import Policy
from hilum.receive.policy.record_writer import AssociationRecordWriter
from hilum.receive.statuses import (
    CannotUnderstand,
    DataSetDoesNotMatch,
    OutOfResources,
    SopClassNotNegotiated,
)
from hilum.receive.storage.dispatcher import EquipmentIdentity, ObjectDispatcher
from hilum.receive.storage.image_store import ImageStore
from hilum.receive.storage.incoming_object import Arriving
from hilum.receive.storage.session import indexing
from hilum.services.image_decisions import open_decisions
from hilum.settings import Receive, Sender, Settings
from hilum.store.admin.decisions import CannotResolve
from hilum.store.admin.unreferenced_files import orphans
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger, RecordOutcome
from hilum.supervisor.housekeeping import Housekeeper
from tests.support.ledger.arrivals import first_arrival
from tests.support.ledger.storing import data_set, element, meta
from tests.support.machine.waiting import wait_for
from tests.support.server.listening import data_set_of, make_settings, unindexed
from tests.support.server.taking import StoreRequest, store

DX = str(DigitalXRayImageStorageForPresentation)


class House:
    """An installation without processes."""

    def __init__(self, state: Path) -> None:
        self.settings = make_settings(state)
        self.ledger = Ledger(self.settings.ledger_url)
        self.archive = Archive(self.settings.archive_dir, "listener-1")
        self.indexer = Indexer(self.settings, self.ledger, self.archive)

    def intake(self, indexer: Indexer | None = None, **receive: object) -> ImageStore:
        settings = Receive.model_validate({"reserve_bytes": 0, **receive})
        return ImageStore(settings, self.archive, indexer or self.indexer)

    def put(self, encoded: bytes, uid: str) -> Path:
        """A durable file that waits for its row."""
        store(request(encoded, uid), self.intake().begin)
        return max(self.archive.unindexed(), key=lambda file: file.stat().st_mtime_ns)

    def desk(self) -> CommitmentReporter:
        return CommitmentReporter(
            self.settings, self.ledger, Safekeeping(self.ledger, self.archive, 0.0), "listener-1"
        )

    def index(self, *files: Path) -> list[RecordOutcome]:
        return list(index(files, self.settings, self.ledger, self.archive).elements())

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.settings.site.state_dir / "ledger.sqlite") as connection:
            return connection.execute(query).fetchall()

    def execute(self, statement: str) -> None:
        with sqlite3.connect(self.settings.site.state_dir / "ledger.sqlite") as connection:
            connection.execute(statement)

    def files(self) -> set[str]:
        return {
            str(file.relative_to(self.archive.root))
            for file in self.archive.root.rglob("*")
            if file.is_file()
        }


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "state")
    yield made
    made.ledger.close()


def request(encoded: bytes, uid: str, context: str = DX) -> StoreRequest:
    return StoreRequest(meta(uid), context, memoryview(encoded))


def test_a_new_instance_has_a_row_readings_and_its_place(house: House) -> None:
    file = house.put(data_set("1.2.3"), "1.2.3")
    assert house.index(file) == [RecordOutcome.NEW]
    ((path, calling),) = house.rows("SELECT path, calling_ae_title FROM instance")
    assert house.files() == {path}
    assert calling == "MODALITY"
    assert house.rows("SELECT release, state FROM reading") == [("densenet121_untrained@1", "due")]


def test_an_arrival_carries_the_senders_quiet_period(house: House) -> None:
    settings = Settings(
        senders={"MODALITY": {"quiet_seconds": 3.5}}, models={"releases": ["a@1", "b@1"]}
    )
    arrival = first_arrival(describe(house.put(data_set("1.2.3"), "1.2.3")), settings)
    assert (arrival.quiet_seconds, arrival.releases, arrival.priority) == (
        3.5,
        ("a@1", "b@1"),
        Priority.LIVE,
    )


def test_the_same_bytes_again_are_a_duplicate_and_deleted(house: House) -> None:
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    before = house.files()
    assert house.index(house.put(data_set("1.2.3"), "1.2.3")) == [RecordOutcome.DUPLICATE]
    assert house.files() == before


@pytest.mark.parametrize("copies", [1, 2])
def test_the_same_bytes_again_are_kept_where_the_first_ones_are_gone(
    house: House, copies: int
) -> None:
    """Retention had deleted them and an older ledger was restored, or a disk has lost them.

    What comes is the only copy.
    """
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    ((lost,),) = house.rows("SELECT path FROM instance")
    (house.archive.root / str(lost)).unlink()
    house.execute("UPDATE reading SET state = 'not_analysed', reason = 'instance_missing'")
    house.execute("UPDATE study SET open_readings = 0, state = 'closed'")
    again = [house.put(data_set("1.2.3"), "1.2.3") for _ in range(copies)]
    assert house.index(*again) == [
        RecordOutcome.RESTORED,
        *[RecordOutcome.DUPLICATE] * (copies - 1),
    ]
    ((path,),) = house.rows("SELECT path FROM instance WHERE pixels_removed_at IS NULL")
    assert (path != lost, data_set_of(house.archive.root / str(path))) == (True, data_set("1.2.3"))
    assert house.rows("SELECT state FROM reading") == [("due",)]
    assert house.rows("SELECT state, open_readings FROM study") == [("due", 1)]


def test_the_same_bytes_twice_in_one_batch(house: House) -> None:
    files = [house.put(data_set("1.2.3"), "1.2.3") for _ in range(2)]
    assert house.index(*files) == [RecordOutcome.NEW, RecordOutcome.DUPLICATE]
    assert len(house.files()) == 1


def test_another_header_is_a_revision_and_the_row_names_the_new_file(house: House) -> None:
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    revised = data_set("1.2.3", patient_id=b"MERGED")
    assert house.index(house.put(revised, "1.2.3")) == [RecordOutcome.HEADER_REVISION]
    ((path, revision),) = house.rows("SELECT path, header_revision FROM instance")
    assert revision == 2
    assert data_set_of(house.archive.root / str(path)) == revised


def test_other_pixels_are_a_conflict_kept_in_quarantine_once(house: House) -> None:
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    other = data_set("1.2.3", pixels=b"\1\2" * 100)
    assert house.index(house.put(other, "1.2.3")) == [RecordOutcome.CONFLICT]
    assert house.index(house.put(other, "1.2.3")) == [RecordOutcome.DUPLICATE]
    ((path, state),) = house.rows("SELECT path, state FROM conflict")
    assert state == "held"
    assert str(path).startswith("quarantine/")
    assert data_set_of(house.archive.root / str(path)) == other
    ((first,),) = house.rows("SELECT path FROM instance")
    assert data_set_of(house.archive.root / str(first)) == data_set("1.2.3")


def test_the_same_bytes_again_are_kept_beside_a_known_conflict(house: House) -> None:
    """Both come in one batch, as from a router that repeats an hour."""
    ours, other = data_set("1.2.3"), data_set("1.2.3", pixels=b"\1\2" * 100)
    house.index(house.put(ours, "1.2.3"))
    house.index(house.put(other, "1.2.3"))
    (house.archive.root / str(house.rows("SELECT path FROM instance")[0][0])).unlink()
    assert house.index(house.put(ours, "1.2.3"), house.put(other, "1.2.3")) == [
        RecordOutcome.RESTORED,
        RecordOutcome.DUPLICATE,
    ]
    ((path,),) = house.rows("SELECT path FROM instance")
    assert data_set_of(house.archive.root / str(path)) == ours


@pytest.mark.parametrize("damage", ["none", "nothing left", "cut", "bit", "sector"])
def test_the_same_bytes_again_are_kept_where_the_first_ones_are_damaged(
    house: House, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end their readings, and who looks for the reason has the image sent again."""
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    ((damaged,),) = house.rows("SELECT path FROM instance")
    file = house.archive.root / str(damaged)
    content = file.read_bytes()
    house.execute("UPDATE reading SET state = 'failed', reason = 'attempts_exhausted'")
    file.write_bytes(
        {"nothing left": b"", "cut": content[:-900], "bit": content[:-1] + b"!"}.get(
            damage, content
        )
    )

    def fail(path: Path, seed: int) -> Instance:
        if path == file:
            raise OSError(errno.EIO, "Input/output error")
        return describe(path, seed)

    if damage == "sector":
        monkeypatch.setattr(missing_files, "describe", fail)
    again = house.index(house.put(data_set("1.2.3"), "1.2.3"))
    ((path,),) = house.rows("SELECT path FROM instance WHERE pixels_removed_at IS NULL")
    assert again == [RecordOutcome.DUPLICATE if damage == "none" else RecordOutcome.RESTORED]
    assert data_set_of(house.archive.root / str(path)) == data_set("1.2.3")
    assert house.rows("SELECT path, cause FROM expired_file") == (
        [] if damage == "none" else [(damaged, "superseded")]
    )
    assert orphans(house.settings.ledger_url, house.archive) == [], (
        "nobody takes the damaged one for an image"
    )


@pytest.mark.parametrize("record_again", [False, True])
def test_killed_on_the_way_the_scan_takes_what_comes_in_place_of_a_damaged_file(
    house: House, *, record_again: bool
) -> None:
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    ((damaged,),) = house.rows("SELECT path FROM instance")
    (house.archive.root / str(damaged)).write_bytes(b"")
    file = house.put(data_set("1.2.3"), "1.2.3")
    arrival = first_arrival(describe(file, house.ledger.digest_seed), house.settings)
    house.ledger.give_up_files({"1.2.3": str(damaged)}, {"1.2.3"})
    if record_again:
        assert house.ledger.record([arrival]) == [RecordOutcome.RESTORED]
    assert recover(house.settings, house.ledger, house.archive).outcomes.total() == 1
    ((path,),) = house.rows("SELECT path FROM instance WHERE pixels_removed_at IS NULL")
    assert (path != damaged, data_set_of(house.archive.root / str(path))) == (
        True,
        data_set("1.2.3"),
    )
    assert house.rows("SELECT path, cause FROM expired_file") == [(damaged, "superseded")]
    assert not file.exists(), "it has its place, and nobody takes it once more"


@pytest.mark.parametrize("copies", [1, 2])
def test_other_pixels_again_are_kept_where_quarantine_has_lost_them(
    house: House, copies: int
) -> None:
    """A sender that wants them as the image is asked to send them again."""
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    other = data_set("1.2.3", pixels=b"\1\2" * 100)
    house.index(house.put(other, "1.2.3"))
    ((lost,),) = house.rows("SELECT path FROM conflict")
    (house.archive.root / str(lost)).unlink()
    with contextlib.closing(open_decisions(house.settings)) as decisions:
        with pytest.raises(CannotResolve, match="send it again, then decide"):
            decisions.replace(1)
        again = [house.put(other, "1.2.3") for _ in range(copies)]
        assert house.index(*again) == [
            RecordOutcome.CONFLICT,
            *[RecordOutcome.DUPLICATE] * (copies - 1),
        ]
        ((path,),) = house.rows("SELECT path FROM conflict")
        assert (path != lost, data_set_of(house.archive.root / str(path))) == (True, other)
        decisions.replace(1)
    ((used,),) = house.rows("SELECT path FROM instance")
    assert data_set_of(house.archive.root / str(used)) == other


@pytest.mark.parametrize("record_again", [False, True])
def test_killed_on_the_way_the_scan_quarantines_what_takes_the_place_of_a_lost_file(
    house: House, *, record_again: bool
) -> None:
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    other = data_set("1.2.3", pixels=b"\1\2" * 100)
    house.index(house.put(other, "1.2.3"))
    (house.archive.root / str(house.rows("SELECT path FROM conflict")[0][0])).unlink()
    file = house.put(other, "1.2.3")
    arrival = first_arrival(describe(file, house.ledger.digest_seed), house.settings)
    house.ledger.take_place_in_quarantine(house.ledger.quarantined([arrival.instance]))
    if record_again:
        house.ledger.record([arrival])
    assert recover(house.settings, house.ledger, house.archive).outcomes == {
        RecordOutcome.CONFLICT: 1
    }
    ((path,),) = house.rows("SELECT path FROM conflict")
    assert data_set_of(house.archive.root / str(path)) == other
    assert len(house.files()) == 2 + len(list((house.archive.root / "locks").iterdir()))


def test_what_another_user_has_left_behind_holds_up_nobody(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As root's `hilum ingest` of an earlier version: no server started beside it."""
    closed, ours = house.put(data_set("1.2.3"), "1.2.3"), house.put(data_set("1.2.4"), "1.2.4")
    (house.archive.root / "unindexed" / "ingest-0").mkdir()
    held, described = Archive.held, indexer.describe

    def hold(archive: Archive, process: str) -> contextlib.AbstractContextManager[bool]:
        if process == "ingest-0":
            raise PermissionError(errno.EACCES, "Permission denied", "ingest-0.lock")
        return held(archive, process)

    def describe(file: Path, seed: int) -> Instance:
        if file == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return described(file, seed)

    monkeypatch.setattr(Archive, "held", hold)
    monkeypatch.setattr(indexer, "describe", describe)
    assert recover(house.settings, house.ledger, Archive(house.settings.archive_dir)).outcomes == {
        RecordOutcome.NEW: 1
    }
    assert (closed.exists(), ours.exists()) == (True, False)
    said = "".join(capsys.readouterr())
    assert ("not_recovered" in said, "unreadable" in said) == (True, True)
    with pytest.raises(PermissionError):
        house.index(closed)  # its own listener tries again


def test_a_folder_that_may_not_be_looked_into_is_no_empty_one(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As root's with its umask 077.

    What had been acknowledged there had no row, and nobody said so.
    """
    closed = put_elsewhere(house, "ingest-0", data_set("1.2.3"), "1.2.3").parent
    (closed.parent / "no folder").touch()
    put_elsewhere(house, "listener-2", data_set("1.2.4"), "1.2.4")

    listed = os.listdir

    def look(path: Path) -> list[str]:
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "listdir", look)
    assert recover(house.settings, house.ledger, Archive(house.settings.archive_dir)).outcomes == {
        RecordOutcome.NEW: 1
    }
    assert "not_recovered" in "".join(capsys.readouterr())


@pytest.mark.parametrize("change", ["nothing", "header", "pixels"])
def test_a_file_whose_row_exists_is_settled_by_the_scan(house: House, change: str) -> None:
    """The crash came between the commit and the move, for each kind of outcome."""
    if change != "nothing":
        house.index(house.put(data_set("1.2.3"), "1.2.3"))
    encoded = {
        "nothing": data_set("1.2.3"),
        "header": data_set("1.2.3", patient_id=b"NEWER1"),
        "pixels": data_set("1.2.3", pixels=b"\7\7"),
    }
    file = house.put(encoded[change], "1.2.3")
    house.ledger.record([first_arrival(describe(file, house.ledger.digest_seed), house.settings)])
    recover(house.settings, house.ledger, house.archive)
    assert not list(unindexed(house.archive))
    kept = house.rows(
        "SELECT path FROM conflict" if change == "pixels" else "SELECT path FROM instance"
    )
    assert data_set_of(house.archive.root / str(kept[0][0])) == encoded[change]


def put_elsewhere(house: House, process: str, encoded: bytes, uid: str) -> Path:
    """A durable file in the folder of another listener."""
    with Archive(house.settings.archive_dir, process).begin() as incoming:
        incoming.write(file_meta.encode(meta(uid)), encoded)
        return incoming.commit()


@pytest.mark.parametrize("processes", [("listener-1", "listener-2"), ("listener-2", "listener-1")])
@pytest.mark.parametrize("change", [{"patient_id": b"CORREC"}, {"pixels": b"\1\2" * 100}])
def test_two_folders_of_dead_listeners_are_taken_in_the_order_in_which_their_files_came(
    house: House, processes: tuple[str, str], change: dict[str, bytes]
) -> None:
    """The first pixels and the last header hold, whichever listener had which."""
    first, second = data_set("1.2.3"), data_set("1.2.3", **change)
    for process, encoded in zip(processes, (first, second), strict=True):
        put_elsewhere(house, process, encoded, "1.2.3")
    recover(house.settings, house.ledger, house.archive)
    ((path,),) = house.rows("SELECT path FROM instance")
    assert data_set_of(house.archive.root / str(path)) == (first if "pixels" in change else second)
    assert [state for (state,) in house.rows("SELECT state FROM conflict")] == ["held"] * (
        "pixels" in change
    )


def test_what_a_dead_listener_left_behind_takes_no_newer_header_back(house: House) -> None:
    old = put_elsewhere(house, "listener-2", data_set("1.2.3"), "1.2.3")
    newer = data_set("1.2.3", patient_id=b"CORREC")
    house.index(house.put(newer, "1.2.3"))
    assert recover(house.settings, house.ledger, house.archive).outcomes == {
        RecordOutcome.DUPLICATE: 1
    }
    ((path, revision),) = house.rows("SELECT path, header_revision FROM instance")
    assert (data_set_of(house.archive.root / str(path)), revision) == (newer, 1)
    assert not old.exists()
    assert len(house.rows("SELECT digest FROM former_header")) == 1, (
        "who takes its folder again knows it"
    )


def test_what_a_listener_left_behind_itself_takes_no_newer_header_back(house: House) -> None:
    put_elsewhere(house, "listener-1", data_set("1.2.3"), "1.2.3")
    newer = put_elsewhere(house, "listener-2", data_set("1.2.3", patient_id=b"CORREC"), "1.2.3")
    house.index(newer)
    with indexing(house.settings, house.ledger, house.archive, threading.Event(), 30.0):
        pass
    ((revision,),) = house.rows("SELECT header_revision FROM instance")
    assert revision == 1
    assert not list(unindexed(house.archive))


def test_the_housekeeper_takes_what_a_host_that_is_gone_had_acknowledged_and_nothing_of_one_that_lives(
    house: House,
) -> None:
    keeper = Housekeeper(house.settings)
    put_elsewhere(house, "gone-listener-0", data_set("1.2.3"), "1.2.3")
    put_elsewhere(house, "other-listener-0", data_set("1.2.4"), "1.2.4")
    with house.archive.held("other-listener-0"):
        keeper.turn()
        assert house.rows("SELECT 1 FROM instance") == [], (
            "who has just ended is being started again"
        )
        for folder in (house.archive.root / "unindexed").iterdir():
            os.utime(folder, (then := time.time() - 61, then))
        keeper.turn()
    keeper.stop()
    assert house.rows("SELECT sop_instance_uid FROM instance") == [("1.2.3",)]
    assert [file.parent.name for file in house.archive.unindexed()] == ["other-listener-0"]


def test_the_scan_holds_nothing_but_what_it_takes(house: House) -> None:
    """Others of a shared archive may begin meanwhile, however many there have ever been."""
    put_elsewhere(house, "listener-1", data_set("1.2.3"), "1.2.3")
    for number in range(600):
        (house.archive.root / f"unindexed/pod{number}").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 - numbers, no paths; held by the tests before
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 300, hard))
    try:
        assert recover(house.settings, house.ledger, house.archive).outcomes == {
            RecordOutcome.NEW: 1
        }
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_clock_that_is_set_back_keeps_no_correction_out(house: House) -> None:
    """What comes now is the newest, whatever its time says."""
    house.index(house.put(data_set("1.2.3"), "1.2.3"))
    file = house.put(data_set("1.2.3", patient_id=b"CORREC"), "1.2.3")
    os.utime(file, (1e9, 1e9))
    assert house.index(file) == [RecordOutcome.HEADER_REVISION]


def test_what_cannot_be_read_goes_to_quarantine_and_holds_nobody_up(house: House) -> None:
    good = house.put(data_set("1.2.3"), "1.2.3")
    for name, content in (("junk", b"not dicom"), ("empty", b"")):
        (good.parent / f"{name}.dcm").write_bytes(content)
    found = recover(house.settings, house.ledger, house.archive)
    assert found.outcomes == {RecordOutcome.NEW: 1}
    assert {Path(path).name for path in house.files() if path.startswith("quarantine/")} == {
        "junk.dcm",
        "empty.dcm",
    }
    assert not list(unindexed(house.archive))


def test_a_file_that_vanished_is_no_reason_to_stop(house: House) -> None:
    gone, there = house.put(data_set("1.2.1"), "1.2.1"), house.put(data_set("1.2.2"), "1.2.2")
    gone.unlink()
    assert house.index(gone, there) == [RecordOutcome.NEW]


def test_one_object_that_the_ledger_refuses_is_quarantined_alone(house: House) -> None:
    house.execute(
        "CREATE TRIGGER bad BEFORE INSERT ON instance WHEN new.sop_instance_uid = '1.2.2' BEGIN"
        " SELECT raise(ABORT, 'no'); END"
    )
    files = [house.put(data_set(uid), uid) for uid in ("1.2.1", "1.2.2", "1.2.3")]
    assert house.index(*files) == [RecordOutcome.NEW, RecordOutcome.NEW]
    assert house.rows("SELECT sop_instance_uid FROM instance ORDER BY 1") == [
        ("1.2.1",),
        ("1.2.3",),
    ]
    assert [path for path in house.files() if path.startswith("quarantine/")] == [
        f"quarantine/{files[1].name[:2]}/{files[1].name[2:4]}/{files[1].name}"
    ]


def test_the_thread_indexes_and_drains_at_the_end(house: House) -> None:
    house.indexer.start()
    for number in range(300):
        store(request(data_set(f"1.2.{number}"), f"1.2.{number}"), house.intake().begin)
    house.indexer.stop(60)
    assert house.rows("SELECT count(*) FROM instance") == [(300,)]
    assert not list(unindexed(house.archive))
    assert house.indexer.failure is None


def test_images_that_come_while_others_do_get_their_rows_together(house: House) -> None:
    """What is under way ends the wait no sooner than it comes, and what was refused is waited for no more."""
    intake = house.intake()
    with contextlib.closing(
        Arriving(request(data_set("1.2.9"), "1.2.9").command, intake.begin)
    ) as another:
        another.write([memoryview(data_set("1.2.9", pixels=bytes(100_000)))])
        assert len(house.indexer.under_way) == 1
        store(request(data_set("1.2.3"), "1.2.3"), intake.begin)
        assert len(house.indexer.under_way) == 1
    assert not house.indexer.under_way
    house.indexer.start()
    house.indexer.stop(20)
    assert house.rows("SELECT sop_instance_uid FROM instance") == [("1.2.3",)]


def test_an_image_that_comes_slowly_holds_up_no_other(house: House) -> None:
    house.indexer.under_way.add(object())  # and never ends
    house.indexer.start()
    for uid in ("1.2.3", "1.2.4"):
        store(request(data_set(uid), uid), house.intake().begin)
        wait_for(lambda uid=uid: (uid,) in house.rows("SELECT sop_instance_uid FROM instance"))
    house.indexer.stop(20)
    assert house.indexer.failure is None


def test_a_ledger_that_is_away_loses_nothing_and_is_waited_for(house: House) -> None:
    indexer = Indexer(house.settings, house.ledger, house.archive, patience_seconds=0)
    house.execute("ALTER TABLE instance RENAME TO away")
    indexer.start()
    store(request(data_set("1.2.3"), "1.2.3"), house.intake(indexer).begin)
    wait_for(lambda: indexer.is_overloaded)
    with pytest.raises(OutOfResources, match="ledger is not available"):
        store(request(data_set("1.2.4"), "1.2.4"), house.intake(indexer).begin)
    assert len(list(unindexed(house.archive))) == 1
    house.execute("ALTER TABLE away RENAME TO instance")
    wait_for(lambda: not indexer.is_overloaded)
    assert house.rows("SELECT sop_instance_uid FROM instance") == [("1.2.3",)]
    indexer.stop(20)


def test_an_archive_that_does_not_answer_while_the_ledger_is_away_is_waited_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it may be taken for gone: nobody would look for it before the next start."""
    looks, look = list[object](), os.stat

    def fail(path: object, *more: object, **named: object) -> os.stat_result:
        if str(path).endswith(".dcm") and len(looks) < 2:
            looks.append(path)
            raise OSError(errno.ESTALE, "Stale file handle")
        return look(path, *more, **named)  # type: ignore[arg-type]

    indexer = Indexer(house.settings, house.ledger, house.archive, patience_seconds=0)
    store(request(data_set("1.2.3"), "1.2.3"), house.intake(indexer).begin)
    house.execute("ALTER TABLE instance RENAME TO away")
    monkeypatch.setattr(os, "stat", fail)
    monkeypatch.setattr(os, "lstat", fail)
    indexer.start()
    wait_for(lambda: looks)
    house.execute("ALTER TABLE away RENAME TO instance")
    wait_for(lambda: house.rows("SELECT sop_instance_uid FROM instance") == [("1.2.3",)])
    indexer.stop(20)
    assert indexer.failure is None


def test_a_ledger_that_does_not_answer_is_away_before_the_try_has_ended(house: House) -> None:
    indexer = Indexer(house.settings, house.ledger, house.archive, patience_seconds=0)
    with sqlite3.connect(house.settings.site.state_dir / "ledger.sqlite") as other:
        other.execute("BEGIN IMMEDIATE")  # a try waits 30 s for it
        store(request(data_set("1.2.3"), "1.2.3"), house.intake(indexer).begin)
        indexer.start()
        wait_for(lambda: indexer.is_overloaded, 20)
    wait_for(lambda: not indexer.is_overloaded)
    indexer.stop(20)


def test_a_ledger_that_stays_away_does_not_hold_up_the_end(house: House) -> None:
    house.execute("ALTER TABLE instance RENAME TO away")
    store(request(data_set("1.2.3"), "1.2.3"), house.intake().begin)
    house.indexer.start()
    house.indexer.stop(20)
    assert len(list(unindexed(house.archive))) == 1
    house.execute("ALTER TABLE away RENAME TO instance")
    assert recover(house.settings, house.ledger, house.archive).outcomes == {RecordOutcome.NEW: 1}


def test_a_long_queue_refuses_more(house: House) -> None:
    indexer = Indexer(house.settings, house.ledger, house.archive, maximum_backlog=2)
    intake = house.intake(indexer)
    for number in range(2):
        store(request(data_set(f"1.2.{number}"), f"1.2.{number}"), intake.begin)
    with pytest.raises(OutOfResources, match="send again later"):
        store(request(data_set("1.2.9"), "1.2.9"), intake.begin)
    indexer.start()
    wait_for(lambda: not indexer.is_overloaded)
    store(request(data_set("1.2.9"), "1.2.9"), intake.begin)
    indexer.stop(20)
    assert house.rows("SELECT count(*) FROM instance") == [(3,)]


def test_a_reserve_larger_than_the_disk_refuses_before_writing(house: House) -> None:
    with pytest.raises(OutOfResources, match="nearly full"):
        store(request(data_set("1.2.3"), "1.2.3"), house.intake(reserve_bytes=1 << 60).begin)
    assert house.files() == set()


def test_an_object_beyond_the_limit_is_refused(house: House) -> None:
    large = data_set("1.2.3", pixels=bytes(1 << 20))
    with pytest.raises(OutOfResources, match="limit of 1 MiB"):
        store(request(large, "1.2.3"), house.intake(maximum_object_bytes=1 << 20).begin)
    assert house.files() == set()


@pytest.mark.parametrize(
    ("encoded", "uid", "context", "expected"),
    [
        (data_set("1.2.3"), "1.2.4", DX, DataSetDoesNotMatch),
        (data_set("1.2.3"), "not-a-uid", DX, DataSetDoesNotMatch),
        (data_set("1.2.3").replace(b"1.1.1.1\0", b"1.1.1.2\0"), "1.2.3", DX, DataSetDoesNotMatch),
        (data_set("1.2.3"), "1.2.3", "1.2.840.10008.5.1.4.1.1.2", SopClassNotNegotiated),
        (b"", "1.2.3", DX, CannotUnderstand),
        (b"GET / HTTP/1.1\r\n\r\n", "1.2.3", DX, CannotUnderstand),
        (data_set("1.2.3", study=""), "1.2.3", DX, CannotUnderstand),
        (element(0x00080018, b"UI", b"1.2.3\0"), "1.2.3", DX, CannotUnderstand),
    ],
)
def test_what_cannot_be_indexed_is_refused_before_it_is_written(
    house: House, encoded: bytes, uid: str, context: str, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        store(request(encoded, uid, context), house.intake().begin)
    assert house.files() == set()


def test_the_limit_of_a_sender_holds_for_all_processes_together(house: House) -> None:
    receive, census = Receive(), SharedAssociationCounter(2, ("ROUTER",))
    policy = Policy(receive, {"ROUTER": Sender(maximum_associations=2)})
    reception = ObjectDispatcher(
        house.intake(),
        house.ledger,
        EquipmentIdentity("Hilum project", house.ledger.serial),
        policy,
    )
    book, desk = AssociationRecordWriter(house.ledger), house.desk()
    first, second = (
        AdmissionControl(
            receive,
            policy,
            reception,
            book,
            desk,
            TakenReports(Settings(), house.ledger),
            PendingConnections(9),
            seat=CounterSlot(census, index),
        )
        for index in range(2)
    )
    inside = object()
    assert first.admit(inside, "HILUM", "ROUTER") is None
    assert second.admit(object(), "HILUM", "ROUTER ") is None
    for door in (first, second):
        rejected = door.admit(object(), "HILUM", "ROUTER")
        assert rejected is not None
        assert rejected.reason == "limit_of_sender_exceeded"
        assert door.admit(object(), "HILUM", "CR1") is None
    first.leave(inside)
    assert second.admit(object(), "HILUM", "ROUTER") is None


def count(counter_fd: int, may_end: Event, holds: Event) -> None:
    """Another listener, in the middle of its count."""
    with SharedAssociationCounter(2, (), counter_fd).held():
        holds.set()
        may_end.wait()


def test_who_leaves_does_not_change_what_another_process_counts(house: House) -> None:
    """Numbers are written a byte at a time: half of one would be counted."""
    fork = multiprocessing.get_context("fork")  # the descriptor is inherited, as it is by listeners
    receive, census, may_end, holds = (
        Receive(),
        SharedAssociationCounter(2),
        fork.Event(),
        fork.Event(),
    )
    policy = Policy(receive, {})
    reception = ObjectDispatcher(
        house.intake(),
        house.ledger,
        EquipmentIdentity("Hilum project", house.ledger.serial),
        policy,
    )
    door, inside = (
        AdmissionControl(
            receive,
            policy,
            reception,
            AssociationRecordWriter(house.ledger),
            house.desk(),
            TakenReports(Settings(), house.ledger),
            PendingConnections(9),
            seat=CounterSlot(census, 0),
        ),
        object(),
    )
    assert door.admit(inside, "HILUM", "CR1") is None
    other, leaving = (
        fork.Process(target=count, args=(census.descriptor, may_end, holds)),
        threading.Thread(target=door.leave, args=(inside,)),
    )
    other.start()
    assert holds.wait(60)
    leaving.start()
    try:
        waits = f"-> POSIX  ADVISORY  WRITE {os.getpid()} "
        wait_for(
            lambda: waits in Path("/proc/locks").read_text() or not leaving.is_alive(),
            what="its turn",
        )
        assert census.elsewhere(-1).total() == 1
    finally:
        may_end.set()
        leaving.join()
        other.join()
    assert census.elsewhere(-1).total() == 0


def test_the_door_counts_those_who_are_inside(house: House) -> None:
    receive = Receive(maximum_associations=1)
    policy = Policy(receive, {})
    reception = ObjectDispatcher(
        house.intake(),
        house.ledger,
        EquipmentIdentity("Hilum project", house.ledger.serial),
        policy,
    )
    door = AdmissionControl(
        receive,
        policy,
        reception,
        AssociationRecordWriter(house.ledger),
        house.desk(),
        TakenReports(Settings(), house.ledger),
        PendingConnections(9),
    )
    first, second = object(), object()
    assert door.admit(first, "HILUM", "A") is None
    rejected = door.admit(second, "HILUM", "B")
    assert rejected is not None
    assert rejected.diagnostic == 2
    door.leave(first)
    assert door.admit(second, "HILUM", "B") is None
    door.leave(second)
    door.leave(second)
    assert door.admit(object(), "HILUM", "C") is None
