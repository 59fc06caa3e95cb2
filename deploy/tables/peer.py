"""The tables of docs/figures/peer.md: what the committed run of `make load-peer` found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

_RESULT: Final = Path(__file__).resolve().parents[2] / "load_tests/results/load-peer.json"
_SYSTEMS: Final = ("plain", "informed", "hilum")


def peer_table(row: Callable[..., str], result: Path = _RESULT) -> Iterator[str]:
    """A line a system (medians of the rounds), where its CPU goes, how far scores are apart, and the goals."""
    found = json.loads(result.read_text(encoding="utf-8"))
    rounds: Sequence[Mapping[str, Any]] = found["rounds"]
    machine = found["machine"]
    yield (
        f"\nMeasured {found['measured_at'][:10]} on {machine['cores']} cores {machine['cpu']},"
        f" {len(rounds)} rounds; medians.\n"
    )
    yield "| system | studies/s | CPU ms a study | idle, p95 | of which |\n|---|--:|--:|--:|---|"
    for name in _SYSTEMS:
        yield row(name, *_figures([measured[name] for measured in rounds]))
    apart = ", ".join(
        f"{name} peer {value:.4f}" for name, value in found["largest_score_differences"].items()
    )
    yield f"\nLargest difference of a score from Hilum's: {apart}."
    yield "\n| goal | measured | wanted | holds |\n|---|--:|--:|---|"
    for goal in found["goals"]:
        sign = "at most" if goal["at_most"] else "at least"
        yield row(
            goal["name"],
            f"{goal['value']:.3g}",
            f"{sign} {goal['goal']:g}",
            "yes" if goal["holds"] else "no",
        )


def _figures(rounds: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    roles = {
        role: median(one["cpu_seconds_per_study_by_role"][role] for one in rounds)
        for role in rounds[0]["cpu_seconds_per_study_by_role"]
    }
    parts = sorted(
        ((seconds, role) for role, seconds in roles.items() if seconds >= 0.0005), reverse=True
    )
    return (
        f"{median(one['studies_per_second'] for one in rounds):.1f}",
        f"{1000 * median(one['cpu_seconds_per_study'] for one in rounds):.0f}",
        (
            f"{median(one['idle_last_image_to_sr_beyond_wait_seconds']['p95'] for one in rounds):.3f} s"
        ),
        ", ".join(f"{role} {1000 * seconds:.1f}" for seconds, role in parts),
    )
