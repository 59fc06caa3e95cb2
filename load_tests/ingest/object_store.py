"""What an object store costs beside a folder, for an image of 10 MB.

    python -m load_tests.ingest.object_store [--objects 24] [--rounds 5] [--result FILE]
    python -m load_tests.ingest.object_store --url s3://bucket/prefix --endpoint http://host:9000

Into the archive: what the listener's indexer does with an acknowledged file, before and after its
row. Out of it: the whole object in the memory of an analyser. CPU is that of this process alone.
Without `--url` the store is a small server of ours in a process of its own on loopback, so times
are those of a network that costs nothing, and of a server in Python.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hilum.settings.archive import ArchiveSection
from hilum.store.archive.archive import Archive, place_of
from hilum.store.archive.object_archive import ObjectArchive
from hilum.store.archive.object_client import ObjectClient
from load_tests.load.measure import Goal, circumstances
from load_tests.load.turns import median_of_turns, record_turns, turns_parser
from testing.network.scripted_s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, ScriptedS3
from testing.serving import REPOSITORY

_RESULT: Final = REPOSITORY / "load_tests/results/bench-object-store.json"
_OBJECT: Final = os.urandom(10_000_000)
_SERIAL: Final = "0123456789abcdef"
_WAYS: Final = ("folder", "store")
_AT_ONCE: Final = (1, 8)
_START_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Turn:
    """One way in one round: medians of an image, in milliseconds."""

    what: str
    way: str
    at_once: int
    wall_ms: float
    cpu_ms: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not."""
    parser = turns_parser(__doc__, _RESULT, objects=24)
    parser.add_argument("--url", default="", help="of a store that is there")
    parser.add_argument("--endpoint", default="", help="of that store")
    options = parser.parse_args(arguments)
    before = circumstances()
    with (
        tempfile.TemporaryDirectory(prefix="hilum-object-store-") as name,
        _store(options.url, options.endpoint, Path(name)) as section,
    ):
        archives = _archives(Path(name), section)
        turns = [
            turn
            for _ in range(options.rounds)
            for at_once in _AT_ONCE
            for way in _WAYS
            for turn in _turns(archives[way], way, at_once, options.objects)
        ]
    goals = list(_goals(turns))
    _show(turns)
    about = {
        "what": "an image of 10 MB into the archive and out of it, folder beside object store",
        "store": options.url or "a server of ours on loopback",
    }
    return record_turns(options.result, about, before, turns, goals)


@contextlib.contextmanager
def _store(url: str, endpoint: str, folder: Path) -> Iterator[ArchiveSection]:
    """Settings of the store that is there, or of a server that lives as long as the block."""
    if url:
        yield ArchiveSection(url=url, endpoint=endpoint)
        return
    server = ScriptedS3()
    child = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(server.port,), daemon=True
    )
    child.start()
    _await(server.port)
    file = folder / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    try:
        yield ArchiveSection(
            url=f"s3://{BUCKET}/bench",
            endpoint=server.endpoint,
            region=REGION,
            credentials_file=file,
        )
    finally:
        child.kill()
        child.join()


def _await(port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError("the store of this measurement has not started")


def _serve(port: int) -> None:
    server = ScriptedS3(port=port)
    server.start()
    server.wait_stopped()


def _archives(folder: Path, section: ArchiveSection) -> dict[str, Archive]:
    made = {
        "folder": Archive(folder / "archive", "listener-1"),
        "store": ObjectArchive(
            folder / "spool",
            "listener-1",
            client=ObjectClient(section),
            serial=lambda: _SERIAL,
            transfers=section.transfers,
        ),
    }
    for archive in made.values():
        archive.make()
    return made


def _turns(archive: Archive, way: str, at_once: int, objects: int) -> Iterator[Turn]:
    files = [_received(archive) for _ in range(objects)]
    groups = [files[begin : begin + at_once] for begin in range(0, objects, at_once)]

    def bring_in(group: list[Path]) -> None:
        for file in archive.place_all(group):
            archive.settle(file, is_placed=True)

    def read(group: list[Path]) -> None:
        for file in group:
            if archive.is_remote:
                archive.fetch(place_of(file)).close()
            else:
                archive.locate(place_of(file))  # a decode process maps the file

    yield _measured("in", way, at_once, groups, bring_in)
    yield _measured("out", way, at_once, groups, read)
    archive.remove_all([place_of(file) for file in files])


def _received(archive: Archive) -> Path:
    with archive.begin() as incoming:
        incoming.write(_OBJECT)
        return incoming.commit()


def _measured(
    what: str,
    way: str,
    at_once: int,
    groups: Sequence[list[Path]],
    work: Callable[[list[Path]], None],
) -> Turn:
    walls = []
    cpus = []
    for group in groups:
        began = time.perf_counter()
        spent = time.process_time()
        work(group)
        cpus.append((time.process_time() - spent) / len(group) * 1e3)
        walls.append((time.perf_counter() - began) / len(group) * 1e3)
    wall, cpu = (round(statistics.median(values), 3) for values in (walls, cpus))
    return Turn(what, way, at_once, wall, cpu)


def _goals(turns: Sequence[Turn]) -> Iterator[Goal]:
    cpu = partial(median_of_turns, turns, "cpu_ms", at_once=1)
    yield Goal("folder, in: CPU an image", cpu(what="in", way="folder"), "ms", 1.0)
    for what, most in (("in", 40.0), ("out", 40.0)):
        added = cpu(what=what, way="store") - cpu(what=what, way="folder")
        yield Goal(f"store, {what}: CPU added to an image of 10 MB", added, "ms", most)


def _show(turns: Sequence[Turn]) -> None:
    for what in ("in", "out"):
        for at_once in _AT_ONCE:
            for way in _WAYS:
                wall, cpu = (
                    median_of_turns(turns, name, what=what, way=way, at_once=at_once)
                    for name in ("wall_ms", "cpu_ms")
                )
                print(f"{what:3} {at_once} at once, {way:6}  {wall:7.1f} ms  {cpu:6.1f} ms CPU")


if __name__ == "__main__":
    sys.exit(main())
