"""Ways that are measured in turns: the options of such a program, medians, and the result."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from load_tests.load.figures import Goal

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def turns_parser(description: str | None, result: Path, objects: int) -> argparse.ArgumentParser:
    """Options `--objects`, `--rounds` and `--result`, with these defaults."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--objects", type=int, default=objects, help="of each turn (%(default)s)")
    made.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    made.add_argument("--result", type=Path, default=result, help="(%(default)s)")
    return made


def median_of_turns(turns: Sequence[DataclassInstance], figure: str, **wanted: object) -> float:
    """The median of a field over the turns whose other fields are as `wanted`."""
    return float(
        statistics.median(
            getattr(turn, figure)
            for turn in turns
            if all(getattr(turn, name) == value for name, value in wanted.items())
        )
    )


def record_turns(
    path: Path,
    about: Mapping[str, str],
    around: Mapping[str, Any],
    turns: Sequence[DataclassInstance],
    goals: Sequence[Goal],
) -> int:
    """Write the result, print the goals, and return the exit code: 0 all hold, 1 they do not.

    `about`: what was measured. `around`: the circumstances before it.
    """
    content = {
        **about,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        "turns": [asdict(turn) for turn in turns],
        "goals": [goal.as_json() for goal in goals],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for goal in goals:
        state = "holds " if goal.holds else "BROKEN"
        bound = f"{'<=' if goal.at_most else '>='} {goal.goal:g}"
        print(f"{state}  {goal.name}: {goal.value:.2f} {goal.unit} ({bound})")
    return 0 if all(goal.holds for goal in goals) else 1
