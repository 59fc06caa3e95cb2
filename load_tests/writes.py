"""What it saves that writes into the archive end at multiples of 64 KiB: beside writes that end wherever a sender's PDUs do.

    python -m load_tests.writes [--rounds 25] [--folder /var/lib/hilum] [--result load_tests/results/bench-writes.json]

An object of 10 MB through the archive's own writer, as the receive loop hands it on, then mapped, read and dropped as a decode process
does it; in turns, CPU of this process. `--folder` is on the file system that is asked about.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hilum.analyse.page_cache import drop_pages
from hilum.store.archive import ALIGNED_BYTES, Archive
from load_tests.measure import Goal, circumstances
from load_tests.serving import REPOSITORY

_RESULT: Final = REPOSITORY / "load_tests/results/bench-writes.json"
_OBJECT: Final = os.urandom(10_242_000)
_PDU_BYTES: Final = 131_060  # of storescu at its largest
_AT_ONCE: Final = (448 << 10, 512 << 10)  # what the receive loop's buffer holds when it is handed on
_WRITE_OUT_BYTES: Final = 1 << 20
_STEPS: Final = ("write", "read", "drop")
_PAGE_BYTES: Final = 4096


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, show, write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25, help="(%(default)s)")
    parser.add_argument("--folder", type=Path, default=None, help="on the file system to be measured (that of temporary files)")
    parser.add_argument("--result", type=Path, default=_RESULT, help="(%(default)s)")
    options = parser.parse_args(arguments)
    before = circumstances()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="hilum-writes-") as folder:
        ways = {"anywhere": _archive(folder, 1), "aligned": _archive(folder, ALIGNED_BYTES)}
        turns = [{way: _cpu_ms(archive) for way, archive in ways.items()} for _ in range(options.rounds)]
    rows = {way: {step: [turn[way][step] for turn in turns] for step in _STEPS} for way in ways}
    ratio = statistics.median(sum(turn["anywhere"].values()) / sum(turn["aligned"].values()) for turn in turns)
    goal = Goal("CPU of an object: writes that end anywhere / at multiples of 64 KiB", ratio, "times", 1.0, at_most=False)
    for way, steps in rows.items():
        print(f"{way:9}", *(f"{step} {statistics.median(taken):.2f} ms" for step, taken in steps.items()))
    print(f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.3g}")
    said = {"what": "CPU ms an object of 10 MB, in turns", "measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **before}
    options.result.write_text(json.dumps({**said, "rows": rows, "goals": [goal.as_json()]}, indent=1) + "\n", encoding="utf-8")


def _archive(folder: str, aligned_bytes: int) -> Archive:
    return Archive(Path(folder) / str(aligned_bytes), write_out_bytes=_WRITE_OUT_BYTES, aligned_bytes=aligned_bytes)


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
    archive.discard(file)
    return {step: 1000 * (after - before) for step, before, after in zip(_STEPS, marks, marks[1:], strict=False)}


def _handed_on() -> Iterator[list[memoryview]]:
    """The object in pieces, as many at once as come; always the same ones."""
    view, chance = memoryview(_OBJECT), random.Random(1)
    while view:
        size = chance.randint(*_AT_ONCE)
        part, view = view[:size], view[size:]
        yield [part[begin : begin + _PDU_BYTES] for begin in range(0, len(part), _PDU_BYTES)]


def _read(file: Path) -> None:
    """A byte of each page."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert len(mapped[::_PAGE_BYTES]) == -(-len(_OBJECT) // _PAGE_BYTES)


if __name__ == "__main__":
    main()
