"""What it saves that writes into the archive end at multiples of 64 KiB, and that what is in no memory is read past the page cache.

    python -m load_tests.bench.writes [--rounds 25] [--folder /var/lib/hilum] [--result
    load_tests/results/bench-writes.json]

An object of 10 MB through the archive's own writer, as the receive loop hands it on, beside writes
that end wherever a sender's PDUs do;
then mapped, read and dropped as a decode process does it. Then read again from the disk: mapped,
and past the page cache. In turns, CPU of this process. `--folder` is on the file system that is
asked about.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hilum.analyse.decode.page_cache import drop_pages
from hilum.store.archive.archive import ALIGNED_BYTES, Archive
from hilum_preprocessing.header.uncached import uncached
from load_tests.load.measure import Goal, circumstances
from testing.serving import REPOSITORY

_RESULT: Final = REPOSITORY / "load_tests/results/bench-writes.json"
_OBJECT: Final = os.urandom(10_242_000)
_PDU_BYTES: Final = 131_060  # of storescu at its largest
_AT_ONCE: Final = (448 << 10, 512 << 10)  # as the receive loop hands on what its buffer holds
_WRITE_OUT_BYTES: Final = 1 << 20
_STEPS: Final = ("write", "read", "drop")
_AGAIN: Final = ("mapped", "past the cache")
_PAGE_BYTES: Final = 4096

Turn = Mapping[str, Mapping[str, float]]
"""Way to step to milliseconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 some do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25, help="(%(default)s)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=None,
        help="on the file system to be measured (that of temporary files)",
    )
    parser.add_argument("--result", type=Path, default=_RESULT, help="(%(default)s)")
    options = parser.parse_args(arguments)
    before = circumstances()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="hilum-writes-") as folder:
        ways = {"anywhere": _archive(folder, 1), "aligned": _archive(folder, ALIGNED_BYTES)}
        turns = [
            {way: _cpu_ms(archive) for way, archive in ways.items()} for _ in range(options.rounds)
        ]
    rows = {
        way: {step: [turn[way][step] for turn in turns] for step in (*_STEPS, *_AGAIN)}
        for way in ways
    }
    goals = [
        Goal(
            "CPU of an object: writes that end anywhere / at multiples of 64 KiB",
            _ratio(turns),
            "times",
            1.0,
            at_most=False,
        ),
        Goal(
            "CPU to read one that is in no memory: mapped / past the page cache",
            _ratio_again(turns),
            "times",
            1.0,
            at_most=False,
        ),
    ]
    for way, steps in rows.items():
        print(
            f"{way:9}",
            *(f"{step} {statistics.median(taken):.2f} ms" for step, taken in steps.items()),
        )
    for goal in goals:
        print(f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.3g}")
    said = {
        "what": "CPU ms an object of 10 MB, in turns",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **before,
    }
    options.result.write_text(
        json.dumps({**said, "rows": rows, "goals": [goal.as_json() for goal in goals]}, indent=1)
        + "\n",
        encoding="utf-8",
    )
    return 0 if all(goal.holds for goal in goals) else 1


def _ratio(turns: Sequence[Turn]) -> float:
    sums = [
        {way: sum(steps[step] for step in _STEPS) for way, steps in turn.items()} for turn in turns
    ]
    return statistics.median(turn["anywhere"] / turn["aligned"] for turn in sums)


def _ratio_again(turns: Sequence[Turn]) -> float:
    return statistics.median(
        steps[_AGAIN[0]] / steps[_AGAIN[1]] for turn in turns for steps in turn.values()
    )


def _archive(folder: str, aligned_bytes: int) -> Archive:
    return Archive(
        Path(folder) / str(aligned_bytes),
        write_out_bytes=_WRITE_OUT_BYTES,
        aligned_bytes=aligned_bytes,
    )


def _cpu_ms(archive: Archive) -> dict[str, float]:
    marks = [time.process_time()]
    with archive.begin() as incoming:
        for pieces in _handed_on():
            incoming.write(*pieces)
        file = incoming.commit()
    marks.append(time.process_time())
    _read(file)
    marks.append(time.process_time())
    drop_pages(file)
    marks.append(time.process_time())
    _read(file)
    drop_pages(file)
    marks.append(time.process_time())
    _read_past_cache(file)
    marks.append(time.process_time())
    archive.discard(file)
    return {
        step: 1000 * (after - before)
        for step, before, after in zip((*_STEPS, *_AGAIN), marks, marks[1:], strict=False)
    }


def _handed_on() -> Iterator[list[memoryview]]:
    """The object in pieces, as many at once as come; always the same ones."""
    view = memoryview(_OBJECT)
    chance = random.Random(1)
    while view:
        size = chance.randint(*_AT_ONCE)
        part = view[:size]
        view = view[size:]
        yield [part[begin : begin + _PDU_BYTES] for begin in range(0, len(part), _PDU_BYTES)]


def _read(file: Path) -> None:
    """A byte of each page."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert len(mapped[::_PAGE_BYTES]) == -(-len(_OBJECT) // _PAGE_BYTES)


def _read_past_cache(file: Path) -> None:
    """The same."""
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as mapped,
        uncached(file, mapped) as direct,
    ):
        found = None if direct is None else direct.first(direct.size)
        if found is None:
            raise SystemExit(
                f"the file system of {file.parent} does not read past its page cache: name another"
                " --folder"
            )
        assert len(found[::_PAGE_BYTES]) == -(-len(_OBJECT) // _PAGE_BYTES)


if __name__ == "__main__":
    sys.exit(main())
