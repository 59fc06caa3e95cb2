"""The table of docs/figures/proof.md: what the committed runs of `make proof` found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_RESULT: Final = Path(__file__).resolve().parents[2] / "load_tests/results/proof.json"
# What says how hard it was; of a street: how much it had taken.
_TOLD: Final = (
    ("associations", "associations"),
    ("associations_compared", "compared with pynetdicom"),
    ("objects_acknowledged", "objects acknowledged"),
    ("times_full", "times full"),
    ("documents", "documents"),
    ("documents_repeated", "sent again"),
    ("studies", "studies"),
    ("images_acknowledged", "images acknowledged"),
    ("packages", "packages in the image"),
    ("programs", "programs and libraries"),
    ("seconds_from_last_fault_to_quiet", "s to quiet"),
)


def proof_table(row: Callable[..., str], result: Path = _RESULT) -> Iterator[str]:
    """One line a part, then the goals that are missed."""
    parts: Mapping[str, Any] = json.loads(result.read_text(encoding="utf-8"))["parts"]
    yield (
        "\n| part | form | measured | took | what it met | goals kept |\n|---|---|---|--:|---|---|"
    )
    for name, run in parts.items():
        kept = f"{sum(goal['holds'] for goal in run['goals'])} of {len(run['goals'])}"
        yield row(
            f"`{name}`",
            run["form"],
            run["measured_at"][:10],
            f"{run['seconds']:.0f} s",
            run.get("left_out") or _met(run["figures"]),
            kept,
        )
    missed = [
        f"`{name}`: {goal['name']}"
        for name, run in parts.items()
        for goal in run["goals"]
        if not goal["holds"]
    ]
    yield f"\nGoals missed: {', '.join(missed) or 'none'}."


def _met(figures: Mapping[str, Any]) -> str:
    """Kills and cuts, of whatever, and the figures that a person wants first."""
    counted = ((figures.get(word), word) for word in ("kills", "cuts"))
    told = [
        f"{sum(found.values()) if isinstance(found, Mapping) else found} {word}"
        for found, word in counted
        if found
    ]
    return ", ".join(
        [
            *told,
            *(
                f"{figures[key]:,} {words}"
                for key, words in _TOLD
                if isinstance(figures.get(key), int | float)
            ),
        ]
    )


def fleet_table(row: Callable[..., str], result: Path = _RESULT) -> Iterator[str]:
    """One line a scenario of the parts `fleet` and `fleet_delivery`."""
    parts = json.loads(result.read_text(encoding="utf-8"))["parts"]
    yield (
        "\n| scenario | what happens | acknowledged | lost | twice | stuck | steady after |"
        "\n|---|---|--:|--:|--:|--:|--:|"
    )
    for name in ("fleet", "fleet_delivery"):
        yield from _scenarios(row, parts[name]["figures"])


def _scenarios(row: Callable[..., str], found: Mapping[str, Any]) -> Iterator[str]:
    for name, run in found["scenarios"].items():
        seconds = run["seconds_to_steady"]
        yield row(
            f"`{name}`",
            run["what"],
            str(run["acknowledged"]),
            str(run["lost"]),
            _twice(run),
            str(run["stuck"]),
            "never" if seconds is None else f"{seconds:.0f} s",
        )
    for name, why in found["left_out"].items():
        yield row(f"`{name}`", f"left out: {why}", "", "", "", "", "")


def _twice(run: Mapping[str, Any]) -> str:
    """Reports twice with other content; those of a ledger that lost rows stand apart."""
    renewed = run["found"].get("documents_without_a_row")
    return str(run["reported_twice"]) if renewed is None else f"{renewed}, see below"
