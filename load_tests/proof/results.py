"""proof.json: one section a part, each with its own circumstances, so that parts can be run one at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load_tests.load.measure import Goal, circumstances
from load_tests.proof.part import Outcome

RESULT = Path(__file__).parents[1] / "results/proof.json"
_WHAT = (
    "faults under load: a real Hilum with a tiny release between a router that sends again and a"
    " PACS"
)


def section(outcome: Outcome, seed: int, seconds: float, *, is_short: bool) -> dict[str, Any]:
    """What one part yielded, and in what circumstances."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **circumstances(),
        "form": "short" if is_short else "full",
        "seed": seed,
        "seconds": round(seconds, 1),
        **({"left_out": outcome.left_out} if outcome.left_out else {}),
        "figures": dict(outcome.figures),
        "problems": list(outcome.problems),
        "goals": [goal.as_json() for goal in outcome.goals],
    }


def merge(path: Path, name: str, content: dict[str, Any]) -> None:
    """Put one part's section into the file; those of the others stay."""
    whole = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    parts = {**whole.get("parts", {}), name: content}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"what": _WHAT, "parts": parts}, indent=2) + "\n", encoding="utf-8")


def lines(goals: Sequence[Goal]) -> list[str]:
    """For a person, at most 80 columns."""
    return [
        f"  {_holds(goal)}  {goal.name}: {goal.value:.3g} ({'<=' if goal.at_most else '>='} {goal.goal:g})"[
            :80
        ]
        for goal in goals
    ]


def _holds(goal: Goal) -> str:
    return "holds " if goal.holds else "BROKEN"
