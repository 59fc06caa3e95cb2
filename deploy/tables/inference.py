"""The tables of docs/figures/inference.md, of the committed run of `make bench-infer`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULT = Path(__file__).resolve().parents[2] / "load_tests/results/bench-infer.json"
Row = Callable[..., str]
Figures = Mapping[str, Any]


def inference_tables(row: Row, result: Path = RESULT) -> Iterator[str]:
    """Where and when, the hop, the engines, the open loop, the goals."""
    if not result.is_file():
        yield "\nNo run is committed yet: `make bench-infer`, then `make docs`."
        return
    run = json.loads(result.read_text(encoding="utf-8"))
    machine = run["machine"]
    yield f"\nMeasured {run['measured_at'][:10]} on {machine['cores']} cores {machine['cpu']}"
    yield (
        f"with a load average of {machine['load_average_before']:.1f} before"
        f" it{', in the short form' if run['is_quick'] else ''}."
    )
    yield from _hop(row, [item for item in run["rows"] if item["model"].startswith("null")])
    engines = [item for item in run["rows"] if not item["model"].startswith("null")]
    yield from _engines(row, [item for item in engines if item["loop"] == "closed"])
    yield from _open(row, engines)
    yield "\n| goal | measured | bound | holds |\n|---|--:|--:|---|"
    for goal in run["goals"]:
        bound = f"{'at most' if goal['at_most'] else 'at least'} {goal['goal']:g}"
        yield row(
            goal["name"],
            f"{goal['value']:.3g} {goal['unit']}",
            bound,
            "yes" if goal["holds"] else "no",
        )


def _hop(row: Row, rows: Sequence[Figures]) -> Iterator[str]:
    """One request alone for the latency, two under way for the throughput and its CPU."""
    yield "\n### The way there and back: a model that answers at once\n"
    yield (
        "| wire type | transport | batch | p50, alone | images/s, two under way | CPU ms/image |"
        " client | server | stub |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    alone = {_key(item): item for item in rows if item["in_flight"] == 1}
    for item in (item for item in rows if item["in_flight"] == 2):
        cpu = [
            f"{item['cpu_ms_per_image'][role]:.3f}" for role in ("all", "client", "server", "stub")
        ]
        head = (item["model"].removeprefix("null, "), item["transport"], str(item["batch"]))
        yield row(
            *head, f"{alone[_key(item)]['p50_ms']:.2f} ms", f"{item['images_per_second']:.0f}", *cpu
        )


def _key(item: Figures) -> tuple[str, str, int]:
    return item["model"], item["transport"], item["batch"]


def _engines(row: Row, rows: Sequence[Figures]) -> Iterator[str]:
    """Images a second: the bare engine, and as Hilum asks for it."""
    batches = sorted({item["batch"] for item in rows})
    yield "\n### Engines: images a second, bare / through Triton with two batches under way\n"
    yield (
        f"| model and engine | {' | '.join(f'batch {size}' for size in batches)} | latency of one"
        " image |"
    )
    yield f"|---|{'--:|' * (len(batches) + 1)}"
    found = {
        (item["model"], item["transport"], item["batch"], item["in_flight"]): item for item in rows
    }
    for model in dict.fromkeys(item["model"] for item in rows):
        speeds = [
            (found[model, "bare", size, 1], found[model, "as served", size, 2]) for size in batches
        ]
        cells = [
            f"{bare['images_per_second']:.1f} / {served['images_per_second']:.1f}"
            for bare, served in speeds
        ]
        yield row(model, *cells, f"{found[model, 'as served', 1, 1]['p50_ms']:.0f} ms")


def _open(row: Row, rows: Sequence[Figures]) -> Iterator[str]:
    """Single images as they come; the share is of the median round of the bare engine."""
    fours = {
        item["model"]: item
        for item in rows
        if (item["transport"], item["loop"], item["batch"]) == ("bare", "closed", 4)
    }
    yield (
        "\n### Single images in an open loop, as a share of what the bare engine reaches in batches"
        " of four\n"
    )
    yield "| model and engine | engine | images/s | share | p50 | p95 |\n|---|---|--:|--:|--:|--:|"
    for item in (item for item in rows if item["loop"] == "open"):
        where = "through Triton" if item["transport"] == "as served" else item["transport"]
        share = (
            f"{100 * item['images_per_second'] / fours[item['model']]['images_per_second']:.0f} %"
        )
        yield row(
            item["model"],
            where,
            f"{item['images_per_second']:.1f}",
            share,
            f"{item['p50_ms']:.0f} ms",
            f"{item['p95_ms']:.0f} ms",
        )
