"""Claims on an empty and on a full ledger as one picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_SIZE_INCHES: Final = (10, 4.5)
_CLOCKS: Final = {"wall_ms": "wall clock", "cpu_ms": "CPU of client and database"}


def write(path: Path, answer: Mapping[str, Any]) -> None:
    """Draw the share of claims that took at most so long, by both clocks."""
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    for axes, clock in zip(figure.subplots(1, 2, sharey=True), _CLOCKS, strict=True):
        _draw(axes, answer, clock)
    figure.suptitle("One claim of 8 readings, in turns on both ledgers", fontsize=11)
    figure.savefig(path, dpi=110)


def _draw(axes: Axes, answer: Mapping[str, Any], clock: str) -> None:
    labels = {"empty": "empty ledger", "full": f"{answer['rows']:,} finished readings"}
    for name, label in labels.items():
        side = answer["claims"][name]
        values = np.sort(np.array(side[f"all_{clock}"]))
        share = np.arange(1, len(values) + 1) / len(values) * 100
        axes.plot(values, share, label=f"{label} (p99 {side[clock]['p99']:.1f} ms)")
    axes.axhline(99, color="grey", linestyle=":", linewidth=1)
    axes.set_xlabel(f"ms, {_CLOCKS[clock]}")
    axes.set_ylabel("claims at most so long, %")
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
