"""Watched folders, without a server: which files are whole, and where they go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilum.receive.files.folder import FileOutcome, TakenFile
from hilum.receive.files.watched_folder import WatchedFolder
from tests.support.machine.accounts import as_stranger, folder_of_stranger, open_to_all
from tests.support.machine.disks import small_disk

NOW = 1_795_163_400.0
TEN_MINUTES = 600


def put(path: Path, age_seconds: float, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (NOW - age_seconds, NOW - age_seconds))
    return path


def test_a_file_that_still_grows_is_left_alone(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "move", settle_seconds=5)
    young, old = put(tmp_path / "a/young.dcm", 4), put(tmp_path / "b/old.dcm", 6)
    assert list(folder.whole(NOW)) == [old]
    assert list(folder.whole(NOW + 2)) == [young, old]


def test_what_was_taken_moves_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "move", 0)
    for content in (b"first", b"second"):
        folder.settle(TakenFile(put(tmp_path / "s/1.dcm", 9, content), FileOutcome.STORED))
    assert (tmp_path / "taken/s/1.dcm").read_bytes() == b"first"
    assert (tmp_path / "taken/s/1.1.dcm").read_bytes() == b"second"
    assert list(folder.whole(NOW)) == [], "what was taken is not looked at again"


@pytest.mark.parametrize("fate", [FileOutcome.REFUSED, FileOutcome.SKIPPED, FileOutcome.FAILED])
@pytest.mark.parametrize("when_taken", ["move", "delete"])
def test_what_was_not_taken_goes_aside_with_its_reason(
    tmp_path: Path, fate: FileOutcome, when_taken: str
) -> None:
    folder = WatchedFolder(tmp_path, when_taken, 0)  # type: ignore[arg-type]
    folder.settle(TakenFile(put(tmp_path / "x.txt", 9), fate, "not a DICOM file"))
    assert (tmp_path / "refused/x.txt").exists()
    assert (tmp_path / "refused/x.txt.txt").read_text() == f"{fate}: not a DICOM file\n"
    assert list(folder.whole(NOW)) == []


def test_a_name_without_room_for_a_reason_beside_it_is_moved_when_it_was_taken(
    tmp_path: Path,
) -> None:
    folder, name = WatchedFolder(tmp_path, "move", 0), "n" * 255
    folder.settle(TakenFile(put(tmp_path / name, 9), FileOutcome.STORED))
    assert (tmp_path / "taken" / name).exists()


def test_delete_deletes_what_is_in_the_archive_only(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "delete", 0)
    for fate in (FileOutcome.STORED, FileOutcome.KNOWN, FileOutcome.CONFLICT):
        folder.settle(TakenFile(put(tmp_path / "1.dcm", 9), fate))
        assert not list(tmp_path.iterdir())
    folder.settle(TakenFile(put(tmp_path / "report.dcm", 9), FileOutcome.DISCARDED))
    assert [file.relative_to(tmp_path) for file in tmp_path.rglob("*.dcm")] == [
        Path("taken/report.dcm")
    ]


def test_under_keep_a_file_is_taken_again_when_it_changes(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "keep", 0)
    file, now = put(tmp_path / "1.dcm", 9), NOW
    for fate in (FileOutcome.STORED, FileOutcome.REFUSED):
        assert folder.whole(now) == [file]
        folder.settle(TakenFile(file, fate))
        assert folder.whole(now) == []
        put(file, 3 if fate is FileOutcome.STORED else 2, b"other")
        now += TEN_MINUTES  # it was written over in place, of which its folder knows nothing
    assert folder.whole(now) == [file]


def test_a_file_server_that_cannot_say_just_now_forgets_nothing(tmp_path: Path) -> None:
    """What it answers cannot be caused here.

    ESTALE. In a process of its own, where looking fails for a moment.
    """
    put(tmp_path / "seen.dcm", 9), put(tmp_path / "waits.dcm", 9)
    done = subprocess.run(
        [sys.executable, "-c", _HICCUP, str(tmp_path), str(NOW)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["waits.dcm", "waits.dcm", "failed", "waits.dcm"], done.stdout


_HICCUP = """
import errno, os, sys, pathlib
from pathlib import Path
from hilum.receive.files.watched_files import WatchedFiles
folder, now = Path(sys.argv[1]), float(sys.argv[2])
files = WatchedFiles(folder)
files.look(now)
files.leave("seen.dcm")
print(*files.waiting)
real_stat, real_scandir = pathlib.Path.stat, os.scandir
def stat(path, **how):
    if path.suffix:
        raise OSError(errno.ESTALE, "stale")
    return real_stat(path, **how)
class Entry:
    name = "seen.dcm"
    def is_dir(self, follow_symlinks=True): return False
    def stat(self, follow_symlinks=True): raise OSError(errno.ESTALE, "stale")
class Entries(list):
    def __enter__(self): return self
    def __exit__(self, *_): pass
pathlib.Path.stat = stat
files.look(now)
print(*files.waiting)
os.scandir = lambda _: Entries([Entry()])
try:
    files.look(now + 3600)
except OSError:
    print("failed")
pathlib.Path.stat, os.scandir = real_stat, real_scandir
files.look(now + 3600)
print(*files.waiting)
"""


def reads_of(folder: WatchedFolder, seconds: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often folders are read in so many seconds of looking once a second."""
    reads, read = [], os.scandir
    with monkeypatch.context() as counting:
        counting.setattr(os, "scandir", lambda path: reads.append(path) or read(path))
        for second in range(seconds):
            folder.whole(NOW + second)
    return len(reads)


def test_a_folder_in_which_nothing_happens_is_read_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WatchedFolder(tmp_path, "keep", 0)
    for number in range(3):
        folder.leave(put(tmp_path / f"{number}.dcm", 9))
    assert reads_of(folder, 3600, monkeypatch) <= 10 + 3600 // TEN_MINUTES


def test_a_file_that_comes_into_a_quiet_folder_is_seen_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WatchedFolder(tmp_path, "keep", 0)
    folder.leave(put(tmp_path / "below/1.dcm", 9))
    os.utime(tmp_path / "below", (NOW - 9, NOW - 9))
    reads_of(folder, 1000, monkeypatch)
    (tmp_path / "1.part").write_bytes(b"x")
    (tmp_path / "1.part").rename(tmp_path / "below/2.dcm")
    os.utime(tmp_path / "below/2.dcm", (NOW, NOW))
    assert folder.whole(NOW + 1000) == [tmp_path / "below/2.dcm"]
    put(tmp_path / "new/folder/3.dcm", 9)
    assert folder.whole(NOW + 1001) == [tmp_path / "below/2.dcm", tmp_path / "new/folder/3.dcm"], (
        "until it is settled"
    )


def test_a_file_that_is_being_written_is_looked_at_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WatchedFolder(tmp_path, "move", settle_seconds=5)
    file = put(tmp_path / "1.dcm", 0)
    for second in range(60):
        put(file, -second, b"x" * second)
        assert folder.whole(NOW + second) == []
    assert reads_of(folder, 64, monkeypatch) < 10
    assert folder.whole(NOW + 64) == [file]


@pytest.mark.parametrize("when_taken", ["keep", "move", "delete"])
@pytest.mark.parametrize("fate", [FileOutcome.STORED, FileOutcome.REFUSED])
def test_a_file_that_takes_the_place_of_a_taken_one_is_not_taken_for_it(
    tmp_path: Path, when_taken: str, fate: FileOutcome
) -> None:
    folder = WatchedFolder(tmp_path, when_taken, 0)  # type: ignore[arg-type]
    file = put(tmp_path / "1.dcm", 9, b"first")
    assert folder.whole(NOW) == [file]
    put(tmp_path / "other", 9, b"other").rename(
        file
    )  # of the same age and size, while the first is being taken
    folder.settle(TakenFile(file, fate))
    assert file.read_bytes() == b"other"
    assert folder.whole(NOW + 1) == [file]
    folder.settle(TakenFile(file, fate))
    assert folder.whole(NOW + 2) == []


def test_a_folder_that_goes_and_comes_again_is_a_new_one(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "keep", 0)
    file = put(tmp_path / "study/1.dcm", 9)
    folder.settle(TakenFile(file, FileOutcome.STORED))
    file.unlink()
    file.parent.rmdir()
    assert folder.whole(NOW) == []
    assert folder.whole(NOW + 1) == []
    put(file, 9)
    assert folder.whole(NOW + 2) == [file]


def test_links_are_passed_over_and_said(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    put(tmp_path / "elsewhere/1.dcm", 9)
    for name, target in (
        ("link.dcm", "elsewhere/1.dcm"),
        ("folder", "elsewhere"),
        ("nothing.dcm", "elsewhere/2.dcm"),
    ):
        (tmp_path / "watched" / name).symlink_to(tmp_path / target)
    folder = WatchedFolder(tmp_path / "watched", "keep", 0)
    assert folder.whole(NOW) == []
    assert folder.problems == {
        "a link; put the file itself there, or watch the folder in a section of its own"
    }


def test_links_hold_nobody_up(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "keep", 0)
    file = put(tmp_path / "below/1.dcm", 9)
    (tmp_path / "below/0.dcm").symlink_to("0.dcm")
    assert folder.whole(NOW) == [file]
    assert folder.problems
    (tmp_path / "below/0.dcm").unlink()
    assert folder.whole(NOW + 1) == [file]
    assert folder.problems == frozenset()


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_link_named_taken_or_refused_moves_nothing_out_of_the_folder(is_taken: bool) -> None:
    """Another account may write into the watched folder, and not look into the state folder."""
    with open_to_all() as site:
        state, inbox = site / "state", folder_of_stranger(site / "inbox")
        state.mkdir(0o700)
        as_stranger("ln", "-s", state, "taken" if is_taken else "refused", folder=inbox)
        as_stranger("mkdir", "below", folder=inbox)
        as_stranger("touch", "x.pth", "below/y.pth", folder=inbox)
        folder = WatchedFolder(inbox, "move", 0)
        for path in (inbox / "x.pth", inbox / "below/y.pth"):
            with pytest.raises(NotADirectoryError):
                folder.settle(
                    TakenFile(
                        path, FileOutcome.STORED if is_taken else FileOutcome.REFUSED, "no DICOM"
                    )
                )
        assert list(state.iterdir()) == []
        assert (inbox / "x.pth").exists()


def test_a_folder_that_becomes_a_link_while_it_is_looked_at_is_not_read_nor_changed() -> None:
    with open_to_all() as site:
        state, inbox = site / "state", folder_of_stranger(site / "inbox")
        put(state / "secret.dcm", 9)
        state.chmod(0o700)
        as_stranger("mkdir", "below", folder=inbox)
        as_stranger("touch", "below/secret.dcm", folder=inbox)
        folder = WatchedFolder(inbox, "delete", 0)
        (found,) = folder.whole(NOW + TEN_MINUTES)
        as_stranger("mv", "below", "before", folder=inbox)
        as_stranger("ln", "-s", state, "below", folder=inbox)
        with pytest.raises(OSError, match="Not a directory"):
            folder.open(found)
        with pytest.raises(OSError, match="Not a directory"):
            WatchedFolder(inbox, "delete", 0).settle(TakenFile(found, FileOutcome.STORED))
        assert (state / "secret.dcm").exists()


def test_a_file_that_becomes_a_link_is_not_read() -> None:
    with open_to_all() as site:
        inbox = folder_of_stranger(site / "inbox")
        put(site / "secret.dcm", 9)
        as_stranger("ln", "-s", site / "secret.dcm", "1.dcm", folder=inbox)
        with pytest.raises(OSError, match="symbolic links"):
            WatchedFolder(inbox, "delete", 0).open(inbox / "1.dcm")


def test_taken_may_be_a_mount_of_its_own(tmp_path: Path) -> None:
    """A rename does not cross mounts, as each of systemd's ReadWritePaths is one."""
    file = put(tmp_path / "below/1.dcm", 9, b"bytes")
    with small_disk(tmp_path / "taken", 1):
        for number in range(2):
            WatchedFolder(tmp_path, "move", 0).settle(
                TakenFile(put(file, 9, b"bytes"), FileOutcome.STORED)
            )
            assert not file.exists(), number
        moved = sorted((tmp_path / "taken/below").iterdir())
        assert [(path.name, path.read_bytes(), int(path.stat().st_mtime)) for path in moved] == [
            (name, b"bytes", int(NOW - 9)) for name in ("1.1.dcm", "1.dcm")
        ]


def test_a_file_that_turns_into_what_cannot_be_resolved_is_left(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "move", settle_seconds=5)
    first, second = put(tmp_path / "1.dcm", 0), put(tmp_path / "2.dcm", 0)
    assert folder.whole(NOW) == []
    times = tmp_path.stat()
    first.unlink()
    first.symlink_to("1.dcm")
    os.utime(
        tmp_path, ns=(times.st_atime_ns, times.st_mtime_ns)
    )  # as where the folder's time is coarse: it is not read again
    assert folder.whole(NOW + 0.5) == []
    assert folder.whole(NOW + 6) == [second]
    folder.leave(first)


def test_hidden_files_are_somebody_elses(tmp_path: Path) -> None:
    put(tmp_path / ".part.dcm", 99)
    put(tmp_path / ".sync/1.dcm", 99)
    assert list(WatchedFolder(tmp_path, "move", 0).whole(NOW)) == []


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(WatchedFolder(tmp_path / "nothing", "move", 0).whole(NOW))


def test_a_time_in_the_future_is_waited_out_by_our_clock(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "move", settle_seconds=5)
    file = put(tmp_path / "1.dcm", -3600)
    assert list(folder.whole(NOW)) == []
    put(file, -3601, b"it grows")
    assert list(folder.whole(NOW + 4)) == []
    assert list(folder.whole(NOW + 8)) == []
    assert list(folder.whole(NOW + 9)) == [file]


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.utime(tmp_path / "pipe", (NOW - 9, NOW - 9))
    assert list(WatchedFolder(tmp_path, "move", 0).whole(NOW)) == []


def test_a_reason_overwrites_no_file_of_that_name(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "move", 0)
    for name in ("a.txt", "a"):
        folder.settle(TakenFile(put(tmp_path / name, 9, name.encode()), FileOutcome.REFUSED, "why"))
    assert (tmp_path / "refused/a.txt").read_bytes() == b"a.txt"
    assert (tmp_path / "refused/a.1").read_bytes() == b"a"


def test_what_cannot_be_moved_is_left_until_it_changes(tmp_path: Path) -> None:
    folder = WatchedFolder(tmp_path, "move", 0)
    file = put(tmp_path / "1.dcm", 9)
    folder.leave(file)
    assert folder.whole(NOW) == []
    put(file, 8)
    assert folder.whole(NOW + TEN_MINUTES) == [file]
