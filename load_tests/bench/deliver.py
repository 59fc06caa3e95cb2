"""`make bench-deliver`: structured reports to DCMTK's storescp over one association.

Documents a second, and CPU of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydicom.uid import Comprehensive3DSRStorage

from hilum.deliver.cstore import DicomClient
from hilum.domain import Document
from hilum.settings import DicomDestination
from load_tests.load.measure import Goal, circumstances
from testing.peers import StoreScp

RESULT = Path(__file__).parents[1] / "results" / "bench-deliver.json"
_GOAL_PER_SECOND = 100.0
_DOCUMENT_BYTES = 44_000  # 14 findings on two images


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 the goal holds, 1 it does not."""
    parser = argparse.ArgumentParser(prog="load_tests.bench.deliver", description=__doc__)
    parser.add_argument("--documents", type=int, default=500, help="a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    around = circumstances()
    rounds = [measured_round(options.documents, number) for number in range(options.rounds)]
    per_second = sorted(item["documents_per_second"] for item in rounds)[len(rounds) // 2]
    goal = Goal(
        "structured reports to DCMTK on one association, median",
        per_second,
        "documents/s",
        _GOAL_PER_SECOND,
        at_most=False,
    )
    write(options.result, around, rounds, goal)
    show(rounds, goal)
    return 0 if goal.holds else 1


def measured_round(count: int, number: int) -> dict[str, float]:
    """A storescp of its own for each round, so that no round finds a full folder."""
    documents = [document(count * number + index) for index in range(count + 1)]
    with (
        tempfile.TemporaryDirectory() as folder,
        StoreScp(Path(folder) / "pacs") as peer,
        contextlib.closing(DicomClient("bench", DicomDestination(**dict(peer.settings)))) as client,
    ):
        client.deliver(documents.pop())  # the association is there
        began = time.perf_counter()
        cpu = time.process_time()
        for item in documents:
            client.deliver(item)
        seconds = time.perf_counter() - began
        spent = time.process_time() - cpu
        assert len(list((peer.folder / "received").iterdir())) == count + 1, (
            "not every document is there"
        )
    return {
        "documents_per_second": count / seconds,
        "our_cpu_ms_per_document": 1000 * spent / count,
    }


def document(number: int) -> Document:
    """A Part 10 file of the size of a report. storescp stores what comes.

    Nothing here depends on what it says.
    """
    uid = f"2.25.{10**30 + number}"
    elements = _element(0x0008, 0x0016, b"UI", Comprehensive3DSRStorage.encode()) + _element(
        0x0008, 0x0018, b"UI", uid.encode()
    )
    long = b"OB\0\0" + (_DOCUMENT_BYTES - len(elements)).to_bytes(4, "little")
    padding = (
        bytes.fromhex("42001100") + long + bytes(_DOCUMENT_BYTES - len(elements))
    )  # Encapsulated Document
    blank = Document("sr", "application/dicom", b"", str(Comprehensive3DSRStorage), uid, "2.25.1")
    return replace(
        blank,
        content=bytes(128)
        + b"DICM"
        + bytes.fromhex("02000000")
        + b"UL\x04\0"
        + bytes(4)
        + elements
        + padding,
    )


def _element(group: int, number: int, vr: bytes, value: bytes) -> bytes:
    value += b"\0" * (len(value) % 2)
    return (
        group.to_bytes(2, "little")
        + number.to_bytes(2, "little")
        + vr
        + len(value).to_bytes(2, "little")
        + value
    )


def write(path: Path, around: dict[str, Any], rounds: list[dict[str, float]], goal: Goal) -> None:
    """The figures with their circumstances."""
    found = {
        "what": "documents of 44 kB to storescp, one association, one after the other",
        "measured_at": _now(),
        **around,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({**found, "rounds": rounds, "goals": [goal.as_json()]}, indent=2) + "\n",
        encoding="utf-8",
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def show(rounds: list[dict[str, float]], goal: Goal) -> None:
    """For a person."""
    for number, item in enumerate(rounds, 1):
        print(
            f"round {number}  {item['documents_per_second']:7.0f} documents/s "
            f" {item['our_cpu_ms_per_document']:6.2f} ms of our CPU each"
        )
    print(
        f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.0f} {goal.unit} (>="
        f" {goal.goal:g})"
    )


if __name__ == "__main__":
    sys.exit(main())
