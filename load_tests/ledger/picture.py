"""Claims on an empty and on a full ledger as one picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

_SIZE_INCHES: Final = (8, 4.5)


def write(path: Path, answer: Mapping[str, Any]) -> None:
    """Draw the share of claims that took at most so long."""
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    rows = answer["settings"]["rows"]
    labels = {"empty": "empty ledger", "full": f"{rows:,} finished readings"}
    for name, label in labels.items():
        values = np.sort(np.array(answer["claims"][name]["all_ms"]))
        share = np.arange(1, len(values) + 1) / len(values) * 100
        p99 = answer["claims"][name]["ms"]["p99"]
        axes.plot(values, share, label=f"{label} (p99 {p99:.1f} ms)")
    axes.axhline(99, color="grey", linestyle=":", linewidth=1)
    axes.set_xlabel("one claim of 8 readings, ms")
    axes.set_ylabel("claims at most so long, %")
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=110)
