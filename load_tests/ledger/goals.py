"""The goals of `make bench-fleet`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Final

from load_tests.load.measure import Goal

CLAIM_MS: Final = 5.0
CLAIM_RATIO: Final = 1.2
QUERY_MS: Final = 50.0
LINEAR: Final = 0.9


def goals_of(found: Mapping[str, Any]) -> list[Goal]:
    """The goals of one run, each by the wall clock and by CPU clocks.

    The wall clock also measures what else the machine does; CPU clocks do not.
    """
    goals = [
        Goal(
            "database CPU of a reading, 1 analyser / 4 analysers",
            linearity(found["analysers"]),
            "of 1",
            LINEAR,
            at_most=False,
        )
    ]
    for clock, words in {"cpu_ms": "CPU", "wall_ms": "wall clock"}.items():
        goals += _of_claims(found["claims"], clock, words)
        goals += _of_queries(found["queries"], clock, words)
        full = found["removal"]["claims"]["while rows leave"]["full"][clock]["p99"]
        goals.append(Goal(f"claim while rows leave, p99, {words}", full, "ms", CLAIM_MS))
    during = found["removal"]["claims"]["while rows leave"]
    # By the wall clock alone: the session that deletes is one of the sessions.
    ratio = during["full"]["wall_ms"]["p99"] / during["empty"]["wall_ms"]["p99"]
    label = "claim while rows leave, p99, full / empty ledger, wall clock"
    return [*goals, Goal(label, ratio, "times", CLAIM_RATIO)]


def _of_claims(claims: Mapping[str, Any], clock: str, words: str) -> list[Goal]:
    full = claims["full"][clock]["p99"]
    ratio = full / claims["empty"][clock]["p99"]
    return [
        Goal(f"claim, p99, {words}", full, "ms", CLAIM_MS),
        Goal(f"claim, p99, full / empty ledger, {words}", ratio, "times", CLAIM_RATIO),
    ]


def _of_queries(queries: Mapping[str, Any], clock: str, words: str) -> list[Goal]:
    found = []
    for kind, is_metric in {"pages and REST": False, "the exporter": True}.items():
        chosen = {
            name: times[clock]["p95"]
            for name, times in queries.items()
            if name.startswith("metric:") is is_metric
        }
        name = max(chosen, key=chosen.__getitem__)
        label = f"slowest query of {kind} ({name}), p95, {words}"
        found.append(Goal(label, chosen[name], "ms", QUERY_MS))
    return found


def linearity(turns: list[Mapping[str, Any]]) -> float:
    """Database CPU of a reading with one analyser, by that with the most: of medians."""
    cost: dict[int, list[float]] = {}
    for turn in turns:
        cost.setdefault(turn["analysers"], []).append(turn["database_ms_per_reading"])
    usual = {number: statistics.median(values) for number, values in cost.items()}
    return usual[min(usual)] / usual[max(usual)]
