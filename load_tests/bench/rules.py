"""`make bench-rules`: how long the rules take to decide about a study, by its first image."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hilum.receive.indexing.describe import describe
from hilum.rules import facts_of
from hilum.settings import Settings
from load_tests.load.measure import Goal, circumstances
from testing.phantoms import phantom

RESULT = Path(__file__).parents[1] / "results" / "bench-rules.json"
_REPEATS = 7


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 the goals hold, 1 one does not."""
    parser = argparse.ArgumentParser(prog="load_tests.bench.rules", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="(%(default)s)")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    around = circumstances()
    found = {name: _decision(table, options.rounds) for name, (table, _) in _TABLES.items()}
    kept = [
        Goal(f"a decision, {name}", found[name], "us", goal) for name, (_, goal) in _TABLES.items()
    ]
    what = "microseconds of a decision about a phantom's header, the fastest of some repeats"
    answers = {"what": what, "measured_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", **around}
    text = json.dumps(
        {**answers, "us": found, "goals": [goal.as_json() for goal in kept]}, indent=2
    )
    options.result.write_text(f"{text}\n", encoding="utf-8")
    for goal in kept:
        print(
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.1f} {goal.unit} (<="
            f" {goal.goal:g})"
        )
    return 0 if all(goal.holds for goal in kept) else 1


def _of_ten(number: int) -> Mapping[str, Any]:
    return {
        "Modality": ["CT", "MR", "DX"],
        "StudyDescription": f"*other{number}*",
        "Rows": {"min": 5000},
    }


# Conditions of rules before the default, none of which matches, and the goal in microseconds.
_TABLES: Mapping[str, tuple[Sequence[Mapping[str, Any]], float]] = {
    "one rule": ([{"Modality": "CT"}], 100.0),
    "ten rules on three attributes": ([_of_ten(number) for number in range(10)], 300.0),
    "fifty rules on AE Titles": ([{"calling": f"CR{number}"} for number in range(50)], 20.0),
    "a rule on age": ([{"age": {"max": 1}}], 1000.0),
    "a rule on view": ([{"view": "LATERAL"}], 1000.0),
}


def _decision(conditions: Sequence[Mapping[str, Any]], rounds: int) -> float:
    """Microseconds of a decision by the last rule."""
    rules = [{"name": f"rule {number}", "when": when} for number, when in enumerate(conditions)]
    table = Settings.model_validate({"rules": [*rules, {"name": "default"}]}).rule_table
    assert table is not None
    with tempfile.TemporaryDirectory() as folder:
        (image,) = phantom.make_study(seed=1, views=("PA",), rows=64, columns=64)
        instance = describe(phantom.save(image, Path(folder) / "image.dcm"))
    assert table.decide(facts_of(instance)).rule == "default"
    return min(_once(lambda: table.decide(facts_of(instance)), rounds) for _ in range(_REPEATS))


def _once(decide: Callable[[], object], rounds: int) -> float:
    started = time.perf_counter()
    for _ in range(rounds):
        decide()
    return (time.perf_counter() - started) / rounds * 1e6


if __name__ == "__main__":
    sys.exit(main())
