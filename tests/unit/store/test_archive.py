"""Archived files: durable or absent, never half."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from hilum.store.archive.archive import ALIGNED_BYTES, Archive, new_name, place_of, quarantine_path
from hilum.store.archive.directory_sync import SharedSync
from hilum.store.archive.pieces import behind, without_end
from tests.support.ledger.storing import (
    BOUNDARIES,
    IN_NO_ORDER,
    IN_ORDER,
    data_set,
    store_until_killed,
)
from tests.support.machine.descriptors import deleted_and_open
from tests.support.machine.waiting import wait_for
from tests.support.server.listening import data_set_of, make_settings, unindexed


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "archive", "listener-1")
    archive.make()
    return archive


def put(archive: Archive, content: bytes) -> Path:
    with archive.begin() as incoming:
        incoming.write(content)
        return incoming.commit()


def test_committed_bytes_lie_in_the_folder_of_the_process(archive: Archive) -> None:
    with archive.begin() as incoming:
        incoming.write(b"ab")
        incoming.write(memoryview(b"cdef")[:2])
        assert [file.suffix for file in unindexed(archive)] == [".part"]
        file = incoming.commit()
    assert file.read_bytes() == b"abcd"
    assert file.parent == archive.root / "unindexed" / "listener-1"
    assert list(unindexed(archive)) == [file]
    assert incoming.size_bytes == 4


def test_an_object_that_is_not_committed_leaves_nothing(archive: Archive) -> None:
    def fail() -> None:
        with archive.begin() as incoming:
            incoming.write(b"x" * 1000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with archive.begin() as incoming:
        incoming.write(b"y")
    assert not list(unindexed(archive))


def test_pieces_that_a_nearly_full_disk_takes_in_part_go_on_where_it_stopped() -> None:
    pieces = (b"abc", memoryview(b"def"), b"", b"gh")
    assert [b"".join(behind(pieces, count)) for count in range(9)] == [
        b"abcdefgh"[count:] for count in range(9)
    ]


def test_an_end_is_taken_off_pieces() -> None:
    pieces = (b"abc", memoryview(b"def"), b"", b"gh")
    for count in range(9):
        rest, end = without_end(pieces, count)
        assert (b"".join(rest), end) == (b"abcdefgh"[: 8 - count], b"abcdefgh"[8 - count :])


@pytest.mark.parametrize(
    "sizes",
    [
        (500_000, 480_000, 20, 0, 600_000, 1),
        (3, 70_000, 65_533),
        (65_536, 65_536),
        (40_000, 10, 10),
    ],
)
def test_later_writes_end_where_a_page_cache_likes_it_and_nothing_is_missing(
    archive: Archive, sizes: tuple[int, ...]
) -> None:
    pieces = [os.urandom(size) for size in sizes]
    with archive.begin() as incoming:
        for number, piece in enumerate(pieces):
            incoming.write(piece[:7], memoryview(piece)[7:])
            (part,) = unindexed(archive)
            written = part.stat().st_size
            first = sizes[0] if sizes[0] >= ALIGNED_BYTES else 0  # what is less waits for more
            assert (
                written
                == incoming.size_bytes
                == (first if number == 0 else max(first, sum(sizes[: number + 1]) >> 16 << 16))
            )
        assert incoming.commit().read_bytes() == b"".join(pieces)
    assert incoming.size_bytes == sum(sizes)


def test_more_pieces_than_one_call_takes_are_all_written(archive: Archive) -> None:
    pieces = [number.to_bytes(2) for number in range(1500)]
    with archive.begin() as incoming:
        incoming.write(*pieces)
        incoming.write()
        incoming.write(*pieces * 30)
        assert incoming.commit().read_bytes() == b"".join(pieces * 31)


def test_names_come_from_us_and_decide_the_place(archive: Archive) -> None:
    first, second = put(archive, b"1"), put(archive, b"1")
    assert first.name != second.name
    assert place_of(first) == f"{first.name[:2]}/{first.name[2:4]}/{first.name}"
    archive.settle(first)
    archive.quarantine(second)
    assert {file for file in archive.root.rglob("*") if file.is_file()} == {
        archive.root / place_of(first),
        archive.root / quarantine_path(place_of(second)),
    }


def test_objects_of_the_same_minutes_share_a_folder_and_those_of_later_ones_do_not(
    archive: Archive,
) -> None:
    began = time.time()
    files = [put(archive, b"x") for _ in range(50)]
    assert len({file.name for file in files}) == 50
    assert (
        len({Path(place_of(file)).parent for file in files}) <= 1 + (time.time() - began) // 480 + 1
    )
    names = [new_name(480.0 * number) for number in (0, 1, 65_535, 65_536)]
    assert [name[:4] for name in names] == ["0000", "0001", "ffff", "0000"]
    assert {len(name) for name in names} == {32}


def test_what_a_crash_left_is_found_in_the_order_in_which_it_came(archive: Archive) -> None:
    files = [put(archive, b"%d" % number) for number in range(50)]
    assert list(archive.unindexed("listener-1")) == files


def test_a_folder_that_has_gone_is_made_again_but_not_on_another_file_system(
    archive: Archive,
) -> None:
    with archive.held(archive.process):
        shutil.rmtree(put(archive, b"1").parent)
        file = put(archive, b"2")
    assert list(unindexed(archive)) == [file]
    archive.root.rename(archive.root.with_name("away"))
    archive.root.mkdir()  # where it was mounted
    with pytest.raises(FileNotFoundError):
        put(archive, b"3")
    assert not list(archive.root.iterdir())


@pytest.mark.parametrize("is_placed", [True, False])
def test_whether_an_object_was_placed_before_its_row_makes_no_difference(
    archive: Archive, is_placed: bool
) -> None:
    settled, refused, known = (put(archive, b"%d" % number) for number in range(3))
    for file in (settled, refused, known) if is_placed else ():
        assert archive.place(file)
        assert not archive.place(file), "it has its place already"
        assert (archive.root / place_of(file)).read_bytes() == file.read_bytes()
    for _ in range(2):  # as after a crash
        if settled.exists():
            archive.settle(settled)
        if refused.exists():
            archive.quarantine(refused)
        archive.discard(known)
    assert {file for file in archive.root.rglob("*") if file.is_file()} == {
        archive.root / place_of(settled),
        archive.root / quarantine_path(place_of(refused)),
    }


def test_an_object_that_has_its_place_needs_no_look_there(archive: Archive) -> None:
    kept, removed = put(archive, b"kept"), put(archive, b"removed")
    assert all(map(archive.place, (kept, removed)))
    (archive.root / place_of(removed)).unlink()  # nobody asks for it any more
    for file in (kept, removed):
        archive.settle(file, is_placed=True)
    assert [file for file in archive.root.rglob("*.dcm") if file.is_file()] == [
        archive.root / place_of(kept)
    ]


def test_an_object_that_is_gone_has_no_place(archive: Archive) -> None:
    file = put(archive, b"gone")
    file.unlink()
    assert not archive.place(file)
    assert not archive.place(put(archive, b"another").with_name(file.name))


def test_a_process_name_is_one_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot name a folder"):
        Archive(tmp_path, "../elsewhere")


def test_an_object_is_found_before_and_after_it_is_settled(archive: Archive) -> None:
    file = put(archive, b"here")
    reader = Archive(archive.root)
    assert reader.locate(place_of(file)) == file
    assert reader.open(place_of(file)).read() == b"here"
    archive.settle(file)
    assert reader.locate(place_of(file)) == archive.root / place_of(file)
    assert reader.open(place_of(file)).read() == b"here"
    with pytest.raises(FileNotFoundError):
        reader.open("ab/cd/abcd.dcm")


def test_readers_never_miss_an_object_that_moves(archive: Archive) -> None:
    files = [put(archive, b"x") for _ in range(200)]
    missed: list[FileNotFoundError] = []

    def read() -> None:
        for file in files:
            try:
                assert archive.open(place_of(file)).read() == b"x"
            except FileNotFoundError as error:
                missed.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for file in files:
        archive.settle(file)
    for reader in readers:
        reader.join()
    assert not missed


def test_the_sweep_takes_what_was_never_acknowledged_and_the_scan_the_rest(
    archive: Archive,
) -> None:
    other = Archive(archive.root, "listener-2")
    mine, theirs = put(archive, b"1"), put(other, b"2")
    for folder in ("listener-1", "listener-2"):
        (archive.root / "unindexed" / folder / "dead.part").write_bytes(b"half")
    assert archive.sweep("listener-1") == 1
    assert archive.sweep() == 1
    assert list(archive.unindexed("listener-2")) == [theirs]
    assert list(archive.unindexed()) == [mine, theirs]
    archive.discard(mine)
    archive.discard(mine)
    assert list(archive.unindexed()) == [theirs]


def test_an_empty_archive_has_nothing_and_knows_its_disk(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "not" / "yet" / "there")
    assert list(archive.unindexed()) == []
    assert archive.sweep() == 0
    assert archive.free().bytes > 0


def test_a_short_write_is_continued_and_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    # A file size limit is the outermost seam: the write that crosses it is short, and the next one
    # fails.
    script = """
import resource, sys
from pathlib import Path
from hilum.store.archive.archive import Archive
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
incoming = Archive(Path(sys.argv[1])).begin()
try:
    with incoming:
        incoming.write(bytes(1000))
        incoming.write(bytes(3 << 20))
        incoming.commit()
except OSError as error:
    print(error.errno, incoming.size_bytes)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["27", str(1 << 20)]  # EFBIG, after exactly what fitted
    assert not list(unindexed(Archive(tmp_path)))


def test_a_disk_that_is_full_when_the_held_back_end_comes_leaves_nothing(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from hilum.store.archive.archive import Archive
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with Archive(Path(sys.argv[1])).begin() as incoming:
    incoming.write(bytes(1000))
    incoming.write(bytes((1 << 20) - 500))
    print(incoming.size_bytes)
    try:
        incoming.commit()
    except OSError as error:
        print(error.errno)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [
        str(1 << 20),
        "27",
    ]  # all that fits is there, and EFBIG comes at the commit
    assert not list(unindexed(Archive(tmp_path)))


def test_a_file_shorter_than_what_was_written_is_not_committed(archive: Archive) -> None:
    with archive.begin() as incoming:
        incoming.write(bytes(ALIGNED_BYTES))
        (part,) = unindexed(archive)
        os.truncate(part, 3)
        with pytest.raises(OSError, match="3 of 65536 bytes"):
            incoming.commit()
    assert not list(unindexed(archive))


def test_an_object_whose_folder_cannot_be_synced_is_not_acknowledged(archive: Archive) -> None:
    def fail(_folder: Path) -> None:
        raise OSError(5, "Input/output error")

    put(archive, b"first")
    failing = SharedSync(archive.root, fail)
    with pytest.raises(OSError, match="Input/output"):
        failing.wait()
    with pytest.raises(OSError, match="Input/output"):
        failing.wait()


def test_who_waits_while_a_sync_runs_rides_on_the_next_one(tmp_path: Path) -> None:
    running, go_on = threading.Event(), threading.Event()
    begun: list[Path] = []

    def sync(folder: Path) -> None:
        begun.append(folder)
        running.set()
        assert go_on.wait(20)

    shared = SharedSync(tmp_path, sync)

    def ride() -> bool:
        before = len(begun)
        shared.wait()
        return len(begun) > before

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(ride)
        assert running.wait(20)
        riders = [pool.submit(ride) for _ in range(8)]
        assert not any(rider.done() for rider in riders)
        go_on.set()
        assert all(waiter.result(20) for waiter in (first, *riders))
    assert 2 <= len(begun) <= 9


def test_who_rode_on_a_sync_that_failed_is_not_told_that_all_is_well(tmp_path: Path) -> None:
    """Linux says an error once: another sync of the folder succeeds, whether or not the name is on the disk."""
    running, go_on = threading.Event(), threading.Event()
    numbers: list[int] = []

    def sync(_folder: Path) -> None:
        numbers.append(len(numbers) + 1)
        running.set()
        assert go_on.wait(60)
        if numbers[-1] == 2:
            raise OSError(5, "Input/output error")

    shared = SharedSync(tmp_path, sync)
    errors: list[int | None] = []

    def ride() -> None:
        try:
            shared.wait()
        except OSError as error:
            errors.append(error.errno)

    first, *riders = (threading.Thread(target=ride) for _ in range(4))
    first.start()
    assert running.wait(60)
    for rider in riders:
        rider.start()
    wait_for(lambda: all(map(rides_on_the_second, riders)))
    go_on.set()
    for thread in (first, *riders):
        thread.join()
    assert (errors, numbers) == ([5, 5, 5], [1, 2])
    shared.wait()
    assert numbers == [1, 2, 3], "who comes later has a sync of its own"


def rides_on_the_second(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_name != "wait":
        frame = frame.f_back
    return frame is not None and frame.f_locals.get("mine") == 2


def test_many_threads_commit_at_once(archive: Archive) -> None:
    with ThreadPoolExecutor(16) as pool:
        files = list(pool.map(lambda number: put(archive, b"%d" % number), range(200)))
    assert sorted(int(file.read_bytes()) for file in files) == list(range(200))


@pytest.mark.parametrize("order", [IN_ORDER, IN_NO_ORDER])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_kill_9_at_each_durable_boundary(boundary: str, order: str, tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "state")
    acknowledged = store_until_killed(settings, boundary, order)
    archive, rows = recover_all(settings)
    assert set(acknowledged) <= set(rows)
    assert not list(unindexed(archive))
    for uid, path in rows.items():
        assert data_set_of(archive.root / path) == data_set(uid)
    in_the_archive = {
        file for file in archive.root.rglob("*") if file.is_file() and file.parent.name != "locks"
    }
    assert in_the_archive == {archive.root / path for path in rows.values()}
    assert len(rows) == BOUNDARIES[boundary]


def test_a_folder_that_a_live_listener_owns_is_left_alone(archive: Archive) -> None:
    with (
        archive.held("listener-0") as first,
        archive.held("listener-0") as second,
        archive.held("listener-1") as other,
    ):
        assert (first, second, other) == (True, False, True)
    with archive.held("listener-0") as again:
        assert again


def test_who_waits_for_a_lock_that_is_deleted_meanwhile_gets_the_next_one(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock, opened = archive.root / "locks/gone.lock", fcntl.flock, list[int]()

    def deleted_before(fd: IO[str], operation: int) -> None:
        opened.append(fd.fileno())
        if len(opened) == 1:
            path.unlink()
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", deleted_before)
    with archive.held("gone") as is_ours, path.open() as named:
        assert is_ours
        assert len(opened) == 2
        with pytest.raises(BlockingIOError):
            lock(named, fcntl.LOCK_EX | fcntl.LOCK_NB)


def recover_all(settings) -> tuple[Archive, dict[str, str]]:
    from sqlalchemy import create_engine, text

    from hilum.receive.indexing.recovery import recover
    from hilum.store.ledger import Ledger

    archive, ledger = Archive(settings.archive_dir), Ledger(settings.ledger_url)
    recover(settings, ledger, archive)
    again = recover(settings, ledger, archive)
    assert not again.outcomes
    ledger.close()
    with create_engine(settings.ledger_url).connect() as connection:
        return archive, {
            row.sop_instance_uid: row.path
            for row in connection.execute(text("SELECT sop_instance_uid, path FROM instance"))
        }


def test_the_space_of_a_removed_object_is_given_back_when_nobody_waits(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    file = tmp_path / "ab/cd/abcd.dcm"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 1000)
    (tmp_path / "unindexed/main").mkdir(parents=True)
    os.link(file, tmp_path / "unindexed/main/abcd.dcm")
    with ExitStack() as held:
        assert archive.remove("ab/cd/abcd.dcm", held) == 1000
        assert not list(tmp_path.rglob("*.dcm"))
        assert deleted_and_open(tmp_path)
    assert not deleted_and_open(tmp_path)
    assert archive.remove("ab/cd/abcd.dcm") == 0
