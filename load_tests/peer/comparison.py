"""Pure: from the figures of each round to ratios and goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from load_tests.load.measure import Goal, percentiles
from load_tests.peer.phases import RunBroken, Saturation

Scores = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """One system in one round. `idle_beyond`: seconds from last image to report beyond the wait."""

    idle_beyond: tuple[float, ...]
    saturation: Saturation
    repeated_reports: int
    generator_cpu_seconds_per_study: float

    @property
    def cpu_seconds_per_study(self) -> float:
        """Of all its processes."""
        return sum(self.saturation.cpu_seconds_per_study.values())

    @property
    def idle_p95(self) -> float:
        """Seconds beyond the wait."""
        return percentiles(self.idle_beyond)["p95"]

    def as_json(self) -> dict[str, Any]:
        """For load-peer.json."""
        return {
            "studies_per_second": self.saturation.studies_per_second,
            "studies": self.saturation.studies,
            "cpu_seconds_per_study": self.cpu_seconds_per_study,
            "cpu_seconds_per_study_by_role": dict(self.saturation.cpu_seconds_per_study),
            "idle_last_image_to_sr_beyond_wait_seconds": percentiles(self.idle_beyond),
            "saturated_last_image_to_sr_seconds": percentiles(self.saturation.last_image_to_sr),
            "repeated_reports": self.repeated_reports,
            "generator_cpu_seconds_per_study": self.generator_cpu_seconds_per_study,
        }


Round = Mapping[str, Measured]

RATIOS: Mapping[str, Callable[[Round], float]] = {
    "CPU of the plain peer / Hilum's": lambda found: (
        found["plain"].cpu_seconds_per_study / found["hilum"].cpu_seconds_per_study
    ),
    "CPU of the informed peer / Hilum's": lambda found: (
        found["informed"].cpu_seconds_per_study / found["hilum"].cpu_seconds_per_study
    ),
    "studies/s of Hilum / the plain peer": lambda found: (
        found["hilum"].saturation.studies_per_second / found["plain"].saturation.studies_per_second
    ),
    "idle p95 of Hilum / the plain peer": lambda found: (
        found["hilum"].idle_p95 / found["plain"].idle_p95
    ),
}
_GOALS: Mapping[str, tuple[float, bool]] = dict(
    zip(RATIOS, ((8.0, False), (4.0, False), (6.0, False), (0.25, True)), strict=True)
)
# Scores are sigmoids of untrained logits. On three phantom studies bf16 moves one by up to 0.025,
# torch's other antialiasing kernel by up to 0.062; two studies are 0.12 to 0.30 apart.
TOLERANCES: Mapping[str, float] = {"plain": 0.05, "informed": 0.1}


def ratios(rounds: Sequence[Round]) -> dict[str, list[float]]:
    """Of each round."""
    return {name: [of(found) for found in rounds] for name, of in RATIOS.items()}


def differences(scores: Mapping[str, Scores]) -> dict[str, float]:
    """Largest difference of a score between each peer and Hilum.

    Raises RunBroken: they do not have the same labels.
    """
    ours = scores["hilum"]
    for name, theirs in scores.items():
        if set(theirs) != set(ours):
            raise RunBroken(
                f"{name} and Hilum differ in the labels {sorted(set(theirs) ^ set(ours))}"
            )
    return {
        name: max(abs(ours[key] - theirs[key]) for key in ours)
        for name, theirs in scores.items()
        if name != "hilum"
    }


def goals(rounds: Sequence[Round]) -> list[Goal]:
    """Medians of the rounds' ratios against the project's goals."""
    found = ratios(rounds)
    return [
        Goal(name, median(found[name]), "times", goal, at_most)
        for name, (goal, at_most) in _GOALS.items()
    ]
