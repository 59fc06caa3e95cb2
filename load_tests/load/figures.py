"""The figures of a run that a scenario may hold against a bound.

Name → what it is, its unit, and on which side it must stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """`at_most`: good is small."""

    label: str
    unit: str
    at_most: bool = True


FIGURES: Mapping[str, Figure] = {
    "lost_studies": Figure("accepted studies without a report", "studies"),
    "changed_reports": Figure("reports sent again with other bytes", "reports"),
    "refused_studies": Figure("studies that were not accepted", "studies"),
    "silent_refusals": Figure("studies that failed without a refusal", "studies"),
    "reported_of_offered": Figure("reported of the offered studies", "of 1", at_most=False),
    "studies_per_second": Figure(
        "reports a second, from the first to the last", "studies/s", at_most=False
    ),
    "saturation_studies_per_second": Figure("saturation", "studies/s", at_most=False),
    "beyond_quiet_p50_seconds": Figure("last image to SR beyond the quiet period, p50", "s"),
    "beyond_quiet_p95_seconds": Figure("last image to SR beyond the quiet period, p95", "s"),
    "beyond_quiet_p99_seconds": Figure("last image to SR beyond the quiet period, p99", "s"),
    "intended_to_sr_p99_seconds": Figure("intended start to SR, p99", "s"),
    "intended_beyond_quiet_p99_seconds": Figure(
        "intended start to SR beyond the quiet period, p99", "s"
    ),
    "late_start_p99_seconds": Figure("lateness of the sender, p99", "s"),
    "memory_growth_mib_per_minute": Figure("growth of memory under load", "MiB/min"),
    "recovery_seconds": Figure("end of the load to idle latency", "s"),
    "hilum_cpu_seconds_per_study": Figure("CPU of Hilum for a study", "s"),
    "generator_of_hilum_cpu": Figure("CPU of generator and receiver", "of Hilum's"),
}


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that is held against a bound: `at_most` or at least `goal`."""

    name: str
    value: float
    unit: str
    goal: float
    at_most: bool = True

    @property
    def holds(self) -> bool:
        """True if the bound is kept."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def as_json(self) -> dict[str, Any]:
        """For the result. A figure that could not be taken is null: JSON has no infinity."""
        return {
            **asdict(self),
            "value": self.value if math.isfinite(self.value) else None,
            "holds": self.holds,
        }


def goals(values: Mapping[str, float], bounds: Mapping[str, float]) -> list[Goal]:
    """Bounds by the name of their figure → goals.

    A figure that could not be taken holds no goal.
    """
    return [_goal(name, values, bound) for name, bound in bounds.items()]


def _goal(name: str, values: Mapping[str, float], bound: float) -> Goal:
    figure = FIGURES[name]
    missing = float("inf") if figure.at_most else float("-inf")
    return Goal(figure.label, values.get(name, missing), figure.unit, bound, figure.at_most)
