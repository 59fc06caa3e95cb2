"""What a comparison says, for a person and for a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load_tests.load.measure import Goal
from load_tests.peer import comparison
from load_tests.peer.comparison import Measured, Round


def line(measured: Measured) -> str:
    """One system in one round."""
    return (
        f"{measured.saturation.studies_per_second:.2f} studies/s,"
        f" {measured.cpu_seconds_per_study:.3f} CPU s a study, idle p95 {measured.idle_p95:.3f} s"
    )


def show(rounds: Sequence[Round], apart: Mapping[str, float], kept: Sequence[Goal]) -> None:
    """Rounds, CPU by role of the last one, differences of scores, goals."""
    print(
        f"\n{'system':12}{'studies/s':>12}{'CPU s/study':>14}{'idle p95, s':>14}   beyond the wait"
    )
    for found in rounds:
        for name, one in found.items():
            print(
                f"{name:12}{one.saturation.studies_per_second:12.2f}{one.cpu_seconds_per_study:14.3f}{one.idle_p95:14.3f}"
            )
    print("\nCPU s/study by role, last round")
    for name, one in rounds[-1].items():
        for role, seconds in one.saturation.cpu_seconds_per_study.items():
            print(f"{name:12}{role:16}{seconds:10.3f}")
    print("\nlargest difference of a score from Hilum's")
    for name, value in apart.items():
        print(f"{name:28}{value:10.3f}")
    print()
    for goal in kept:
        sign = "<=" if goal.at_most else ">="
        print(
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.3g} ({sign}"
            f" {goal.goal:g})"
        )


def write(
    path: Path,
    rounds: Sequence[Round],
    apart: Mapping[str, float],
    kept: Sequence[Goal],
    around: Mapping[str, Any],
) -> None:
    """`load-peer.json`: figures with the circumstances that they are true in."""
    content = {
        "what": (
            "Hilum, a plain and an informed peer in turns on the same phantom studies of two"
            " images; docs/figures/peer.md"
        ),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        "rounds": [
            {name: measured.as_json() for name, measured in found.items()} for found in rounds
        ],
        "ratios_by_round": comparison.ratios(rounds),
        "largest_score_differences": dict(apart),
        "goals": [goal.as_json() for goal in kept],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
