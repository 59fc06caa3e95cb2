"""From the runs of `make bench-ingest` to its medians, ratios and goals."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load_tests.ingest.cells import Cell
from load_tests.load.measure import Goal

HILUM = "hilum"
DCMTK = "storescp"
SYNCED = "storescp fdatasync"
ORTHANC = "Orthanc"
SINK = "C sink"
HILUM_TWO = "hilum, 2 processes"
HILUM_TLS = "hilum TLS, 2 processes"
DCMTK_TLS = "storescp TLS"
HILUM_PLAIN = "hilum, not compiled"
HILUM_TWICE = "hilum, two commits"
NAMES = (
    HILUM,
    HILUM_PLAIN,
    HILUM_TWICE,
    HILUM_TWO,
    DCMTK,
    SYNCED,
    SINK,
    ORTHANC,
    HILUM_TLS,
    DCMTK_TLS,
)
PEERS = (HILUM_PLAIN, HILUM_TWICE, DCMTK, SYNCED, ORTHANC, SINK, DCMTK_TLS)
_STUDY_EACH = 1.05  # times SYNCED
# Ours, to the others, to the least ratio of speeds for each kind of object.
_TO_OTHERS: Mapping[str, Mapping[str, float]] = {
    SYNCED: {"dx": 1.25, "jls": 1.0, "small": 1.0},
    ORTHANC: {"dx": 4.0, "small": 4.0},
    SINK: {"dx": 1.0, "jls": 1.0, "small": 1.0},
}
_LEAST_SPEED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    HILUM: _TO_OTHERS,
    HILUM_TLS: {DCMTK_TLS: {"dx": 0.9}},
}
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One receiver in one round of one condition.

    `stages`: our own milliseconds an instance, by where they went.
    """

    cell: Cell
    receiver: str
    instances_per_second: float
    cpu_seconds_per_gb: float
    cpu_ms_per_instance: float
    stages: Mapping[str, float] = field(default_factory=dict)


def summary(runs: Sequence[Run]) -> list[Row]:
    """Medians of each receiver in each condition, and its ratios to the peers, round by round."""
    keys = dict.fromkeys((run.cell, run.receiver) for run in runs)
    return [
        _row(cell, receiver, [run for run in runs if run.cell == cell]) for cell, receiver in keys
    ]


def _row(cell: Cell, receiver: str, runs: Sequence[Run]) -> Row:
    own = [run for run in runs if run.receiver == receiver]
    row: Row = {"cell": str(cell), **asdict(cell), "receiver": receiver}
    for name in ("instances_per_second", "cpu_seconds_per_gb", "cpu_ms_per_instance"):
        row[name] = statistics.median(getattr(run, name) for run in own)
    row["stages"] = {
        stage: statistics.median(run.stages[stage] for run in own) for stage in own[0].stages
    }
    for peer in PEERS:
        if others := [run for run in runs if run.receiver == peer != receiver]:
            row[f"speed_of_{peer}"] = _ratios(own, others, "instances_per_second")
            row[f"cpu_of_{peer}"] = _ratios(own, others, "cpu_seconds_per_gb")
    return row


def _ratios(own: Sequence[Run], others: Sequence[Run], name: str) -> dict[str, Any]:
    rounds = [
        getattr(mine, name) / getattr(its, name) for mine, its in zip(own, others, strict=True)
    ]
    return {"median": statistics.median(rounds), "rounds": [round(ratio, 3) for ratio in rounds]}


def goals(table: Sequence[Row]) -> list[Goal]:
    """CPU at most storescp's, which syncs nothing; wall time against those that sync."""
    return [goal for row in table for goal in _goals_of(row)]


def _goals_of(row: Row) -> Iterator[Goal]:
    condition = row["cell"]
    if row["receiver"] == HILUM and f"cpu_of_{DCMTK}" in row:
        yield Goal(
            f"{condition}: CPU of storescp's", row[f"cpu_of_{DCMTK}"]["median"], "times", 1.0
        )
    for peer, least in _LEAST_SPEED.get(row["receiver"], {}).items():
        is_asked = row["kind"] == "small" or row["associations"] > 1
        if f"speed_of_{peer}" in row and row["kind"] in least and is_asked:
            bound = _STUDY_EACH if row["is_study_each"] and peer == SYNCED else least[row["kind"]]
            yield Goal(
                f"{condition}: speed of {peer}",
                row[f"speed_of_{peer}"]["median"],
                "times",
                bound,
                at_most=False,
            )


def write(
    path: Path, around: Row, table: list[Row], runs: Sequence[Run], found: Sequence[Goal], door: Row
) -> None:
    """The figures with their circumstances."""
    said = {
        "what": "C-STORE over loopback by storescu",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
    }
    said |= {
        "storescp": _version(),
        "medians": table,
        "door": door,
        "runs": [asdict(run) for run in runs],
        "goals": [goal.as_json() for goal in found],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def _version() -> str:
    program = shutil.which("storescp") or "storescp"
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return (answer.stdout or answer.stderr).splitlines()[0]


def show(table: Sequence[Row], found: Sequence[Goal]) -> None:
    """For a person."""
    for row in table:
        speed = row.get(f"speed_of_{SYNCED}", {}).get("median", float("nan"))
        print(
            f"{row['cell']:50}  {row['receiver']:22} {row['instances_per_second']:6.0f} instances/s"
            f"  {row['cpu_seconds_per_gb']:5.2f} CPU s/GB  {row['cpu_ms_per_instance']:6.2f} ms"
            f" each  {speed:5.2f} x {SYNCED}"
        )
    for row in table:
        if row["stages"]:
            print(
                f"{row['cell']:50}  "
                + "  ".join(f"{stage} {value:.2f} ms" for stage, value in row["stages"].items())
            )
    for goal in found:
        bound = "<=" if goal.at_most else ">="
        print(
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.2f} {goal.unit}"
            f" ({bound} {goal.goal:g})"
        )
