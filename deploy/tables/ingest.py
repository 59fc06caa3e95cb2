"""The table of receiving in docs/figures/cpu.md, of the committed run of `make bench-ingest`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULT = Path(__file__).resolve().parents[2] / "load_tests/results/bench-ingest.json"
Row = Callable[..., str]
Figures = Mapping[str, Any]
_OURS = "hilum"
_BARE = "C sink"
_UNSYNCED = "storescp"
_PEERS = ("storescp", "storescp fdatasync", "C sink", "Orthanc", "storescp TLS")


def ingest_tables(row: Row, result: Path = RESULT) -> Iterator[str]:
    """Where and when, each receiver in each condition, our ratios round by round, where our CPU went, the door, the goals."""
    if not result.is_file():
        yield "\nNo run is committed yet: `make bench-ingest`, then `make docs`."
        return
    run = json.loads(result.read_text(encoding="utf-8"))
    machine = run["machine"]
    medians = run["medians"]
    yield f"\nMeasured {run['measured_at'][:10]} on {machine['cores']} cores {machine['cpu']}"
    yield (
        f"with a load average of {machine['load_average_before']:.1f} before it; {run['storescp']}."
    )
    yield from _conditions(row, medians)
    yield from _rounds(row, [item for item in medians if item["receiver"].startswith(_OURS)])
    yield from _bare(row, [item for item in medians if item["receiver"] == _BARE])
    yield from _stages(row, [item for item in medians if item["receiver"] == _OURS])
    yield from _goals(row, run["goals"], medians)


def _conditions(row: Row, medians: Sequence[Figures]) -> Iterator[str]:
    receivers = list(dict.fromkeys(item["receiver"] for item in medians))
    found = {(item["cell"], item["receiver"]): item for item in medians}
    yield "\n### Instances a second, and CPU of the receiver in ms an instance\n"
    yield f"| condition | {' | '.join(receivers)} |\n|---|{'--:|' * len(receivers)}"
    for cell in dict.fromkeys(item["cell"] for item in medians):
        yield row(cell, *(_pair(found.get((cell, receiver))) for receiver in receivers))


def _pair(item: Figures | None) -> str:
    return (
        ""
        if item is None
        else f"{item['instances_per_second']:.0f}, {item['cpu_ms_per_instance']:.2f} ms"
    )


def _rounds(row: Row, ours: Sequence[Figures]) -> Iterator[str]:
    """Only rounds that ran beside each other are compared."""
    yield "\n### Ours to the others: median of the rounds, and each round\n"
    yield "| condition | ours | to | speed | CPU |\n|---|---|---|--:|--:|"
    for item in ours:
        for peer in _PEERS:
            if f"speed_of_{peer}" in item:
                yield row(
                    item["cell"],
                    item["receiver"],
                    peer,
                    *(_ratio(item[f"{what}_of_{peer}"]) for what in ("speed", "cpu")),
                )


def _bare(row: Row, items: Sequence[Figures]) -> Iterator[str]:
    """What a receiver reaches that does nothing but receive and sync."""
    yield "\n### The C sink to storescp: what there is to win here\n"
    yield "| condition | speed, to storescp fdatasync | CPU, to storescp |\n|---|--:|--:|"
    for item in items:
        yield row(
            item["cell"],
            _ratio(item["speed_of_storescp fdatasync"]),
            _ratio(item["cpu_of_storescp"]),
        )


def _ratio(found: Figures) -> str:
    return f"{found['median']:.2f} ({' '.join(f'{ratio:.2f}' for ratio in found['rounds'])})"


def _stages(row: Row, ours: Sequence[Figures]) -> Iterator[str]:
    """`receive` is what the stages leave; what the kernel used is in all of them."""
    names = list(ours[0]["stages"]) if ours else []
    yield "\n### Where our CPU goes, ms an instance\n"
    yield f"| condition | {' | '.join(names)} |\n|---|{'--:|' * len(names)}"
    for item in ours:
        yield row(item["cell"], *(f"{item['stages'][name]:.2f}" for name in names))


def _goals(row: Row, goals: Sequence[Figures], medians: Sequence[Figures]) -> Iterator[str]:
    """What others reach in the same condition says how far a goal is from what the machine allows."""
    found = {(item["cell"], item["receiver"]): item for item in medians}
    yield "\n### Goals, and what the C sink, and `storescp` without a sync, reach of them\n"
    yield f"| goal | measured | bound | holds | {_BARE} | {_UNSYNCED} |\n|---|--:|--:|---|--:|--:|"
    for goal in goals:
        bound = f"{'at most' if goal['at_most'] else 'at least'} {goal['goal']:g}"
        cell, _, what = goal["name"].rpartition(": ")
        others = (
            _reached(found.get((cell, receiver), {}), what) for receiver in (_BARE, _UNSYNCED)
        )
        yield row(
            goal["name"],
            f"{goal['value']:.2f} {goal['unit']}",
            bound,
            "yes" if goal["holds"] else "no",
            *others,
        )


def _reached(item: Figures, what: str) -> str:
    key = (
        f"cpu_of_{_UNSYNCED}"
        if what.startswith("CPU of")
        else f"speed_of_{what.removeprefix('speed of ')}"
    )
    return f"{item[key]['median']:.2f}" if key in item else ""
