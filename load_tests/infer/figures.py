"""From windows to the figures of `make bench-infer`.

Medians over rounds, and ratios of what stood side by side in one round.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from load_tests.infer.loops import Window
from load_tests.load.figures import Goal

HOP_CPU_MS = 0.15
WALL_RATIO = 0.95
ADDED_P50_MS = 1.0
Cell = tuple[str, str, str, int, int]
"""(model, transport or `bare`, loop, batch, requests in flight)."""


@dataclass(slots=True)
class Measured:
    """Windows by cell, one a round, in the order of the rounds."""

    windows: dict[Cell, list[Window]] = field(default_factory=dict)

    def add(self, cell: Cell, window: Window) -> None:
        """One more round."""
        self.windows.setdefault(cell, []).append(window)


def ratios(of: Sequence[Window], to: Sequence[Window]) -> list[float]:
    """Images a second of one over the other, round by round.

    What moves the whole machine moves both.
    """
    return [
        one.images_per_second / other.images_per_second for one, other in zip(of, to, strict=True)
    ]


def added_ms(of: Sequence[Window], to: Sequence[Window]) -> list[float]:
    """Median latency of one above the other, milliseconds, round by round."""
    return [one.latency_ms(50) - other.latency_ms(50) for one, other in zip(of, to, strict=True)]


def hop_cpu(windows: Sequence[Window]) -> float:
    """Milliseconds of CPU per image, client, server and stub together; the median round."""
    return statistics.median(window.cpu_ms() for window in windows)


def goals(measured: Measured, ratio_models: Sequence[str]) -> list[Goal]:
    """Those of the issue, on the way that Hilum takes to a Triton of its own machine.

    The other transports are in the tables.
    """
    at = measured.windows
    null = "null, fp16"
    found = [
        Goal(
            "CPU of the hop, batch 16, fp16",
            hop_cpu(at[null, "as served", "closed", 16, 2]),
            "ms/image",
            HOP_CPU_MS,
        )
    ]
    for model in ratio_models:
        both = [at[model, "as served", "closed", 16, 2], at[model, "bare", "closed", 16, 1]]
        name = f"images/s over the bare engine, batch 16, {model}"
        found.append(
            Goal(name, statistics.median(ratios(*both)), "of 1", WALL_RATIO, at_most=False)
        )
    alone = added_ms(at[null, "as served", "closed", 1, 1], at[null, "bare", "closed", 1, 1])
    return [
        *found,
        Goal("added latency, batch 1, p50", statistics.median(alone), "ms", ADDED_P50_MS),
    ]


def as_rows(measured: Measured) -> list[dict[str, Any]]:
    """One a cell, medians over the rounds; for the result file and the tables."""
    return [_row(cell, windows) for cell, windows in measured.windows.items()]


def _row(cell: Cell, windows: Sequence[Window]) -> dict[str, Any]:
    model, transport, loop, batch, in_flight = cell
    spread = sorted(window.images_per_second for window in windows)
    return {
        "model": model,
        "transport": transport,
        "loop": loop,
        "batch": batch,
        "in_flight": in_flight,
        "rounds": len(windows),
        "images_per_second": _median([*spread]),
        "images_per_second_range": [round(spread[0], 2), round(spread[-1], 2)],
        "p50_ms": _median([window.latency_ms(50) for window in windows]),
        "p95_ms": _median([window.latency_ms(95) for window in windows]),
        "cpu_ms_per_image": {
            role: _median([window.cpu_ms(role) for window in windows])
            for role in ("client", "server", "stub")
        }
        | {"all": _median([window.cpu_ms() for window in windows])},
    }


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 4)


def table(
    rows: Sequence[Mapping[str, Any]], loop: str, model_starts: str
) -> list[Mapping[str, Any]]:
    """Rows of one kind."""
    return [
        row for row in rows if row["loop"] == loop and str(row["model"]).startswith(model_starts)
    ]
