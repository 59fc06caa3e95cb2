"""`make bench-ingest`: what receiving costs, interleaved with DCMTK's storescp on the same machine and the same files.

CPU seconds of the receiver are the figure to trust: wall time shares the cores with the senders, and with whoever else is there.
Ours include the rows in the ledger and a durable file and name; storescp's with the shim a durable file; without it, none.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load_tests.ingest_receivers import Receiver, start_hilum, start_storescp, sync_shim
from load_tests.measure import Goal, circumstances
from load_tests.phantom import make_instance, save, uid_for

RESULT = Path(__file__).with_name("results") / "bench-ingest.json"
SIDES = {"dx": 2250, "small": 512}  # pixels a side, 16 bits each: 10 MB and 0.5 MB
HILUM, FALLBACK, DCMTK, SYNCED = "hilum", "hilum pynetdicom", "storescp", "storescp fdatasync"
_WARM = 16  # so many as there are associations at most, or a sender has nothing to send
Start = Callable[[Path], Receiver]


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition: kind of object, associations at once, PDUs of the sender."""

    kind: str
    associations: int
    pdu_bytes: int

    def __str__(self) -> str:
        """For tables."""
        return f"{self.kind:5} n={self.associations:<2} PDU {self.pdu_bytes >> 10:3}K"


@dataclass(frozen=True, slots=True)
class Run:
    """One receiver in one round of one condition."""

    cell: Cell
    receiver: str
    instances_per_second: float
    cpu_seconds_per_gb: float
    cpu_ms_per_instance: float
    peak_mib: float


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 one does not."""
    options = _options(words)
    around = circumstances()
    receivers = _receivers(options.receivers)
    cells = [Cell(*cell) for cell in _conditions(options)]
    with tempfile.TemporaryDirectory(prefix="bench-ingest-", dir=options.folder) as name:
        files = {kind: draw(Path(name) / kind, kind, _WARM + (options.dx if kind == "dx" else options.small)) for kind in options.kinds}
        runs = [
            measure(Path(name), receiver, start, cell, files[cell.kind])
            for cell in cells
            for _ in range(options.rounds)
            for receiver, start in receivers.items()
        ]
    table = summary(runs)
    found = goals(table)
    write(options.result, around, table, runs, found)
    show(table, found)
    return 0 if all(goal.holds for goal in found) else 1


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="load_tests.ingest", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--dx", type=int, default=64, help="objects of 10 MB a run (%(default)s)")
    parser.add_argument("--small", type=int, default=800, help="objects of 0.5 MB a run (%(default)s)")
    parser.add_argument("--kinds", nargs="+", default=list(SIDES), choices=SIDES, help="(%(default)s)")
    parser.add_argument("--associations", nargs="+", type=int, default=[1, 4, 16], help="at once (%(default)s)")
    parser.add_argument("--pdu-kib", nargs="+", type=int, default=[16, 128], help="PDUs of the sender (%(default)s)")
    parser.add_argument("--receivers", nargs="+", default=[HILUM, FALLBACK, DCMTK, SYNCED], help="(%(default)s)")
    parser.add_argument("--folder", type=Path, help="where files are drawn and received; default: the temporary folder")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser.parse_args(words)


def _conditions(options: argparse.Namespace) -> list[tuple[str, int, int]]:
    return [(kind, count, size << 10) for kind in options.kinds for size in options.pdu_kib for count in options.associations]


def _receivers(names: Sequence[str]) -> dict[str, Start]:
    """Those that can be measured here."""
    found: dict[str, Start] = {
        HILUM: lambda folder: start_hilum(folder, "streaming"),
        FALLBACK: lambda folder: start_hilum(folder, "pynetdicom"),
        DCMTK: start_storescp,
    }
    if (shim := sync_shim()) is not None:
        found[SYNCED] = lambda folder: start_storescp(folder, shim)
    return {name: start for name, start in found.items() if name in names}


def draw(folder: Path, kind: str, count: int) -> list[Path]:
    """So many objects, each with a SOP Instance UID of its own."""
    folder.mkdir()
    side = SIDES[kind]
    base = make_instance(1, rows=side, columns=side)
    files = []
    for number in range(count):
        base.SOPInstanceUID = uid_for("ingest", kind, number)
        base.file_meta.MediaStorageSOPInstanceUID = base.SOPInstanceUID
        files.append(save(base, folder / f"{number:05}.dcm"))
    return files


def measure(folder: Path, name: str, start: Start, cell: Cell, drawn: Sequence[Path]) -> Run:
    """A fresh receiver takes all files, from so many storescu at once; the first few only warm it up."""
    warm, files = drawn[:_WARM], drawn[_WARM:]
    total = sum(file.stat().st_size for file in files)
    own = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    receiver = start(own)
    try:
        send(warm, cell, receiver.port)
        provide_pages(folder, total)
        wait_until(lambda: receiver.stored() >= len(warm))
        before, began = receiver.cpu_seconds(), time.monotonic()
        send(files, cell, receiver.port)
        seconds = time.monotonic() - began
        wait_until(lambda: receiver.stored() >= len(warm) + len(files))
        cpu, peak = receiver.cpu_seconds() - before, receiver.peak_mib()
    finally:
        receiver.stop()
        empty(own)
    print(f"{cell}  {name:18} {len(files) / seconds:6.0f} instances/s  {1e9 * cpu / total:5.2f} CPU s/GB", flush=True)
    return Run(cell, name, len(files) / seconds, 1e9 * cpu / total, 1000 * cpu / len(files), peak)


def empty(folder: Path) -> None:
    """Free the space and keep the files until the end: for minutes ext4 steps over the inodes of deleted ones, at every creation."""
    for file in folder.rglob("*"):
        if file.is_file():
            os.truncate(file, 0)


def wait_until(condition: Callable[[], bool]) -> None:
    """Look now and then."""
    while not condition():
        time.sleep(0.02)


def provide_pages(folder: Path, size: int) -> None:
    """Have the kernel own as much memory as the run needs: a virtual machine's host takes free pages back and gives them at a price."""
    fuel = folder / "fuel"
    with fuel.open("wb") as file:
        for _ in range(1 + int(1.4 * size) // (4 << 20)):
            file.write(bytes(4 << 20))
    fuel.unlink()


def send(files: Sequence[Path], cell: Cell, port: int) -> None:
    """Raises CalledProcessError when a sender is not served."""
    command = ["storescu", "-R", "-aec", "HILUM", "--max-send-pdu", str(cell.pdu_bytes), "127.0.0.1", str(port)]
    environment = {**os.environ, "TCP_NODELAY": "1"}
    senders = [
        subprocess.Popen([*command, *map(str, files[lane :: cell.associations])], env=environment) for lane in range(cell.associations)
    ]
    for sender in senders:
        if sender.wait() != 0:
            raise subprocess.CalledProcessError(sender.returncode, command)


def summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Medians of each receiver in each condition, and the median of its ratios to storescp with a sync, round by round."""
    keys = dict.fromkeys((run.cell, run.receiver) for run in runs)
    return [_row(cell, receiver, [run for run in runs if run.cell == cell]) for cell, receiver in keys]


def _row(cell: Cell, receiver: str, runs: Sequence[Run]) -> dict[str, Any]:
    own = [run for run in runs if run.receiver == receiver]
    row: dict[str, Any] = {**asdict(cell), "receiver": receiver, "peak_mib": max(run.peak_mib for run in own)}
    for field in ("instances_per_second", "cpu_seconds_per_gb", "cpu_ms_per_instance"):
        row[field] = statistics.median(getattr(run, field) for run in own)
    for peer in (DCMTK, SYNCED):
        others = [run for run in runs if run.receiver == peer]
        if others:
            ratios = zip(own, others, strict=True)
            row[f"speed_of_{peer}"] = statistics.median(mine.instances_per_second / its.instances_per_second for mine, its in ratios)
            row[f"cpu_of_{peer}"] = statistics.median(
                mine.cpu_seconds_per_gb / its.cpu_seconds_per_gb for mine, its in zip(own, others, strict=True)
            )
    return row


def goals(table: Sequence[dict[str, Any]]) -> list[Goal]:
    """CPU at most storescp's, which syncs nothing; wall time against storescp with a sync."""
    found = []
    for row in table:
        if row["receiver"] != HILUM:
            continue
        cell = str(Cell(row["kind"], row["associations"], row["pdu_bytes"]))
        if f"cpu_of_{DCMTK}" in row:
            found.append(Goal(f"{cell}: CPU of storescp's", row[f"cpu_of_{DCMTK}"], "times", 1.0))
        if f"speed_of_{SYNCED}" in row and (row["kind"] == "small" or row["associations"] > 1):
            bound = 1.25 if row["kind"] == "dx" else 1.0
            found.append(Goal(f"{cell}: speed of storescp's with fdatasync", row[f"speed_of_{SYNCED}"], "times", bound, at_most=False))
    return found


def write(path: Path, around: dict[str, Any], table: list[dict[str, Any]], runs: Sequence[Run], found: Sequence[Goal]) -> None:
    """The figures with their circumstances."""
    said = {"what": "C-STORE over loopback by storescu", "measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **around}
    said |= {"storescp": _version(), "medians": table, "runs": [asdict(run) for run in runs], "goals": [goal.as_json() for goal in found]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def _version() -> str:
    program = shutil.which("storescp") or "storescp"
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return (answer.stdout or answer.stderr).splitlines()[0]


def show(table: Sequence[dict[str, Any]], found: Sequence[Goal]) -> None:
    """For a person."""
    for row in table:
        cell = Cell(row["kind"], row["associations"], row["pdu_bytes"])
        speed = row.get(f"speed_of_{SYNCED}", float("nan"))
        print(
            f"{cell}  {row['receiver']:18} {row['instances_per_second']:6.0f} instances/s  {row['cpu_seconds_per_gb']:5.2f} CPU s/GB"
            f"  {row['cpu_ms_per_instance']:6.2f} ms each  {speed:5.2f} x {SYNCED}  {row['peak_mib']:5.0f} MiB"
        )
    for goal in found:
        bound = "<=" if goal.at_most else ">="
        print(f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.2f} {goal.unit} ({bound} {goal.goal:g})")


if __name__ == "__main__":
    sys.exit(main())
