"""The goals of `make bench-fleet`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from load_tests.load.measure import Goal

CLAIM_MS: Final = 5.0
CLAIM_RATIO: Final = 1.2
QUERY_MS: Final = 50.0
LINEAR: Final = 0.9


def goals_of(found: Mapping[str, Any]) -> list[Goal]:
    """The goals of one run."""
    full = found["claims"]["full"]["ms"]
    empty = found["claims"]["empty"]["ms"]
    pages = _slowest(found["queries_ms"], is_metric=False)
    metrics = _slowest(found["queries_ms"], is_metric=True)
    return [
        Goal("claim, p99, full ledger", full["p99"], "ms", CLAIM_MS),
        Goal("claim, p99, full / empty ledger", full["p99"] / empty["p99"], "times", CLAIM_RATIO),
        Goal(f"slowest query of pages and REST, p95 ({pages[1]})", pages[0], "ms", QUERY_MS),
        Goal(f"slowest query of the exporter, p95 ({metrics[1]})", metrics[0], "ms", QUERY_MS),
        Goal(
            "database CPU of a reading, 1 analyser / 4 analysers",
            linearity(found["analysers"]),
            "of 1",
            LINEAR,
            at_most=False,
        ),
    ]


def _slowest(queries: Mapping[str, Any], *, is_metric: bool) -> tuple[float, str]:
    chosen = {
        name: figures["p95"]
        for name, figures in queries.items()
        if name.startswith("metric:") is is_metric
    }
    name = max(chosen, key=chosen.__getitem__)
    return chosen[name], name


def linearity(turns: list[Mapping[str, Any]]) -> float:
    """Database CPU of a reading with one analyser, by that with the most."""
    cost: dict[int, list[float]] = {}
    for turn in turns:
        cost.setdefault(turn["analysers"], []).append(turn["database_ms_per_reading"])
    means = {number: sum(values) / len(values) for number, values in cost.items()}
    return means[min(means)] / means[max(means)]
