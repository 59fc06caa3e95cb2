"""What a run has shown: every figure that a scenario may hold against a bound, and the content of the result file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from load_tests.load import figures as bounds
from load_tests.load.figures import Goal
from load_tests.load.measure import Figures, figures, percentiles
from load_tests.load.phases import Loaded
from load_tests.load.scenario import Scenario
from load_tests.load.scrapes import stretches
from load_tests.load.watch import mean_queues, memory_growth
from testing.accounting import total
from testing.network.receiver import Arrivals

_PEAK_SECONDS = 10
_VISIBLE = ("status 0x", "association rejected", "given up by the sender")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run with its figures."""

    scenario: Scenario
    quiet_seconds: float
    loaded: Loaded
    both_ends: Figures
    values: dict[str, float]
    saturation: float | None
    arrivals: Arrivals

    @property
    def goals(self) -> list[Goal]:
        """Of the scenario."""
        return bounds.goals(self.values, self.scenario.goals)

    @property
    def beyond_quiet(self) -> list[float]:
        """Last image to SR beyond the quiet period, seconds."""
        return [latency - self.quiet_seconds for latency in self.both_ends.last_image_to_sr]

    def stretches(self) -> dict[str, dict[str, float]]:
        """How long items waited and took in each stage, by Hilum's own metrics."""
        return stretches(self.loaded.before, self.loaded.after)

    def longest(self, what: str) -> str | None:
        """The stretch with the largest mean.

        Of `wait`, the queue that costs most time; of `work`, the stage.

        The wait of assembling is left out: a study cannot be claimed before its images are read.
        """
        means = {
            name: stretch["mean"]
            for name, stretch in self.stretches().items()
            if name.endswith(what) and name != "assemble: wait"
        }
        return max(means, key=lambda name: means[name]) if means else None


def judge(
    scenario: Scenario,
    quiet_seconds: float,
    loaded: Loaded,
    arrivals: Arrivals,
    saturation: float | None,
) -> Outcome:
    """All figures of a run."""
    found = figures(loaded.sent, arrivals)
    beyond = percentiles([latency - quiet_seconds for latency in found.last_image_to_sr])
    reports = _reports_under_load(loaded, arrivals)
    values: dict[str, float] = {
        "lost_studies": found.lost + figures(loaded.sent_afterwards, arrivals).lost,
        "changed_reports": found.changed,
        "refused_studies": len(found.failures),
        "silent_refusals": sum(not failure.startswith(_VISIBLE) for failure in found.failures),
        "reported_of_offered": found.reported / max(1, found.offered),
        "studies_per_second": found.studies_per_second,
        **{
            f"beyond_quiet_{name}_seconds": beyond[name]
            for name in ("p50", "p95", "p99")
            if name in beyond
        },
        **_intended(found.intended_to_sr, quiet_seconds),
        **_named("late_start_p99_seconds", percentiles(found.late_starts).get("p99")),
        **_named("memory_growth_mib_per_minute", growth(loaded).get("all")),
        **_named("recovery_seconds", loaded.recovery_seconds),
        **_named("saturation_studies_per_second", _saturation(scenario, reports, saturation)),
        **_cpu(loaded, found.reported),
    }
    return Outcome(scenario, quiet_seconds, loaded, found, values, saturation, arrivals)


def growth(loaded: Loaded) -> dict[str, float]:
    """MiB a minute by role, in the last two thirds of the load: before, pools and caches fill."""
    begin = loaded.begin + (loaded.ended_at - loaded.begin) / 3
    return memory_growth(
        [sample for sample in loaded.samples if begin <= sample.at <= loaded.ended_at]
    )


def as_json(outcome: Outcome, around: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The result file: figures with the circumstances that they are true in."""
    found = outcome.both_ends
    loaded = outcome.loaded
    return {
        "what": outcome.scenario.shows,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        "settings": settings,
        "scenario": outcome.scenario.model_dump(
            mode="json", exclude={"mix": {"__all__": {"files"}}}
        ),
        "saturation_studies_per_second": outcome.values.get("saturation_studies_per_second"),
        "studies": {
            "offered": found.offered,
            "accepted": found.accepted,
            "reported": found.reported,
            "lost": found.lost,
        },
        "refused": dict(Counter(found.failures)),
        "repeated_reports": found.repeated,
        "seconds": {
            "last image to SR": percentiles(found.last_image_to_sr),
            "last image to SR beyond the quiet period": percentiles(outcome.beyond_quiet),
            "intended start to SR": percentiles(found.intended_to_sr),
            "lateness of the sender": percentiles(found.late_starts),
        },
        "figures": outcome.values,
        "cpu_seconds": cpu_by_role(loaded),
        "memory_growth_mib_per_minute": growth(loaded),
        "stages": outcome.stretches(),
        "queues": mean_queues(loaded.samples),
        "longest": {what: outcome.longest(what) for what in ("wait", "work")},
        "per_second": per_second(loaded, outcome.arrivals),
        "samples": [sample.as_json(loaded.begin) for sample in loaded.samples],
        "goals": [goal.as_json() for goal in outcome.goals],
    }


def cpu_by_role(loaded: Loaded) -> dict[str, Any]:
    """CPU seconds of Hilum by role, and of what is not Hilum."""
    hilum = {role: round(use.cpu_seconds, 3) for role, use in loaded.hilum.items()}
    return {
        "hilum": hilum,
        **{name: round(seconds, 3) for name, seconds in loaded.own_cpu_seconds.items()},
    }


def per_second(loaded: Loaded, arrivals: Arrivals) -> dict[str, list[int]]:
    """Studies offered (by their intended start), accepted and reported in each second since the load began."""
    accepted = [study.ended_at for study in loaded.sent if study.failure is None]
    moments = [
        moment
        for study in loaded.sent
        for moment in arrivals.by_study.get(study.study_instance_uid, [])[:1]
    ]
    series = {
        "offered": [study.intended_at for study in loaded.sent],
        "accepted": accepted,
        "reported": moments,
    }
    length = 1 + int(
        max((moment - loaded.begin for values in series.values() for moment in values), default=0)
    )
    return {name: _counts(values, loaded.begin, length) for name, values in series.items()}


def _counts(moments: Sequence[float], begin: float, length: int) -> list[int]:
    seconds = Counter(max(0, int(moment - begin)) for moment in moments)
    return [seconds[second] for second in range(length)]


def _reports_under_load(loaded: Loaded, arrivals: Arrivals) -> list[int]:
    """Of each second of the load.

    What is reported after it was made without a sender beside it, and faster.
    """
    return per_second(loaded, arrivals)["reported"][: max(1, int(loaded.ended_at - loaded.begin))]


def _saturation(scenario: Scenario, reports: Sequence[int], probed: float | None) -> float | None:
    """Of a load that went on until reports fell behind.

    The best ten seconds; else what the probe found.
    """
    if not scenario.stop_behind_seconds:
        return probed
    windows = [
        sum(reports[at : at + _PEAK_SECONDS]) / _PEAK_SECONDS
        for at in range(max(1, len(reports) - _PEAK_SECONDS + 1))
    ]
    return max(windows, default=0.0)


def _cpu(loaded: Loaded, studies: int) -> dict[str, float]:
    """Of a Hilum elsewhere nothing is known."""
    hilum = total(loaded.hilum).cpu_seconds
    if not hilum or not studies:
        return {}
    ours = loaded.own_cpu_seconds["generator"] + loaded.own_cpu_seconds["receiver"]
    return {"hilum_cpu_seconds_per_study": hilum / studies, "generator_of_hilum_cpu": ours / hilum}


def _intended(latencies: Sequence[float], quiet_seconds: float) -> dict[str, float]:
    if (p99 := percentiles(latencies).get("p99")) is None:
        return {}
    return {
        "intended_to_sr_p99_seconds": p99,
        "intended_beyond_quiet_p99_seconds": p99 - quiet_seconds,
    }


def _named(name: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {name: value}
