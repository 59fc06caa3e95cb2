"""How often a received object makes the file system's journal commit.

With names synced as this file system allows, beside the other way.

    python -m load_tests.bench.commits [--objects 240] [--rounds 5] [--folder /var/lib/hilum] [--result
    load_tests/results/bench-commits.json]

On an ext4 that is made for it, in a file (root), or with `--folder` on one that is there.

Objects of 0.5 MB through the archive's own writer, one after the other and from 4 and 16 threads at
once, in turns. Commits are those that ext4 counts (/proc/fs/jbd2), of all that use the file system
meanwhile. Each commit waits for the disk's cache to be emptied, which takes a fraction of a
millisecond on a virtual disk and ten on a spinning one: the count says what the speed of one
machine does not.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.store.archive.archive import Archive
from hilum.store.archive.durable_rename import Durability
from load_tests.load.measure import Goal, circumstances
from load_tests.load.turns import median_of_turns, record_turns, turns_parser
from load_tests.proof.power_disk import PowerDisk
from load_tests.proof.small_disk import may_mount
from testing.serving import REPOSITORY

_RESULT: Final = REPOSITORY / "load_tests/results/bench-commits.json"
_OBJECT: Final = os.urandom(524_288)
_HEADER_BYTES: Final = 1000
_DISK_MIB: Final = 1024
_AT_ONCE: Final = (1, 4, 16)
_WAYS: Final[tuple[Durability, ...]] = ("strict", "auto")
_COMMITS: Final = re.compile(r"(\d+) transactions")


@dataclass(frozen=True, slots=True)
class Turn:
    """One way in one round, `at_once` threads."""

    way: str
    at_once: int
    objects_per_second: float
    commits_per_object: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 this file system does not count."""
    parser = turns_parser(__doc__, _RESULT, objects=240)
    parser.add_argument(
        "--folder", type=Path, help="on the file system to be measured (one made for it)"
    )
    options = parser.parse_args(arguments)
    before = circumstances()
    with _ground(options.folder) as folder:
        if folder is None or (counter := _counter(folder)) is None:
            print(
                "no measurement: needs root, or --folder on an ext4 with a journal", file=sys.stderr
            )
            return 2
        turns = [
            _turn(
                Archive(folder, f"{way}-{number}-{at_once}", durability=way),
                way,
                at_once,
                options.objects,
                counter,
            )
            for at_once in _AT_ONCE
            for number in range(options.rounds)
            for way in _WAYS
        ]
    goals = [_goal(at_once, turns) for at_once in _AT_ONCE]
    _show(turns)
    about = {"what": "journal commits an object of 0.5 MB, in turns"}
    return record_turns(options.result, about, before, turns, goals)


@contextlib.contextmanager
def _ground(wanted: Path | None) -> Iterator[Path | None]:
    """An empty folder on the file system to be measured; None: there is none."""
    with tempfile.TemporaryDirectory(dir=wanted, prefix="hilum-commits-") as folder:
        if wanted is not None:
            yield Path(folder)
        elif may_mount():
            with PowerDisk("ext4", Path(folder) / "disk", _DISK_MIB):
                yield Path(folder) / "disk"
        else:
            yield None


def _counter(folder: Path) -> Path | None:
    """Where the journal of the folder's file system says how often it has committed."""
    device = folder.stat().st_dev
    name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    return next(Path("/proc/fs/jbd2").glob(f"{name}-*/info"), None)


def _commits(counter: Path) -> int:
    found = _COMMITS.match(counter.read_text(encoding="ascii"))
    assert found is not None, "the first word of the file"
    return int(found[1])


def _turn(archive: Archive, way: str, at_once: int, objects: int, counter: Path) -> Turn:
    _put(archive)  # its folder is made
    os.sync()
    before = _commits(counter)
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        files = list(pool.map(lambda _: _put(archive), range(objects)))
    seconds = time.monotonic() - began
    commits = _commits(counter) - before
    for file in files:
        file.unlink()
    return Turn(way, at_once, objects / seconds, commits / objects)


def _put(archive: Archive) -> Path:
    with archive.begin() as incoming:
        incoming.write(_OBJECT[:_HEADER_BYTES])
        incoming.write(_OBJECT[_HEADER_BYTES:])
        return incoming.commit()


def _goal(at_once: int, turns: Sequence[Turn]) -> Goal:
    """One at a time they are halved; together they may share them either way."""
    strict, auto = (
        median_of_turns(turns, "commits_per_object", way=way, at_once=at_once) for way in _WAYS
    )
    least = 1.9 if at_once == 1 else 1.0
    return Goal(
        f"{at_once} at once: journal commits an object, two syncs / one",
        strict / auto,
        "times",
        least,
        at_most=False,
    )


def _show(turns: Sequence[Turn]) -> None:
    for at_once in _AT_ONCE:
        for way in _WAYS:
            commits, speed = (
                median_of_turns(turns, name, way=way, at_once=at_once)
                for name in ("commits_per_object", "objects_per_second")
            )
            print(
                f"{at_once:2} at once, {way:5}  {commits:5.2f} commits an object  {speed:6.0f}"
                " objects/s"
            )


if __name__ == "__main__":
    sys.exit(main())
