"""soak: 20,000 studies as fast as the street takes them.

Memory over time, and whether the end is as quick as the beginning.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from load_tests.load.measure import Goal
from load_tests.proof.part import Found, Plan
from load_tests.proof.router import Load
from load_tests.proof.street.street import NotQuiet, Street

# As fast as the street takes them: what bounds the load is what is under way, not the rate.
LOAD = Load(rate=500.0, views=("PA",), associations=4, studies_per_association=50, outstanding=200)
_SAMPLE_SECONDS = 30.0
_SHORT_SAMPLE_SECONDS = 2.0
_STALLED_SECONDS = 300.0
# Over the second half, where caches and pools are full; 20,000 studies are what a hospital takes in
# a month.
_GROWTH_MIB_PER_1000 = 1.0

Sample = dict[str, float]


def soak(plan: Plan, street: Street) -> Found:
    """20,000 studies of one image; the short form 200."""
    wanted = int(plan.of(20_000, 200))
    begin = time.monotonic()
    street.router.start(wanted)
    samples = _watched(plan, street, wanted)
    street.fault()
    slopes = {
        role: slope(samples, role) for role in samples[-1] if role not in ("studies", "seconds")
    }
    figures = {
        "studies_per_second": round(wanted / (time.monotonic() - begin), 2),
        "ledger_mib": round(street.ledger.stat().st_size / 2**20, 1),
        "mib_per_1000_studies": slopes,
        "samples": samples,
        **_latencies(street),
    }
    return Found(
        figures,
        () if plan.is_short else tuple(_growth_goal(role, slopes[role]) for role in sorted(slopes)),
    )


def _growth_goal(role: str, rate: float) -> Goal:
    return Goal(f"memory of {role}", rate, "MiB per 1,000 studies", _GROWTH_MIB_PER_1000)


def _watched(plan: Plan, street: Street, wanted: int) -> list[Sample]:
    """Memory by role until all are reported."""
    samples: list[Sample] = []
    begin = time.monotonic()
    moved_at = time.monotonic()
    last = 0
    every = plan.of(_SAMPLE_SECONDS, _SHORT_SAMPLE_SECONDS)
    while street.router.is_running or street.outstanding() > 0:
        time.sleep(every)
        reported = street.pacs.arrivals.count()
        moved_at = time.monotonic() if reported > last else moved_at
        last = reported
        if time.monotonic() - moved_at > _STALLED_SECONDS:
            raise NotQuiet(f"no report for {_STALLED_SECONDS:.0f} s at {reported} studies")
        samples.append(
            {"studies": reported, "seconds": round(time.monotonic() - begin, 1), **_memory(street)}
        )
        plan.say(_progress(samples, wanted))
    return samples


def _memory(street: Street) -> Sample:
    return {role: size["mib"] for role, size in street.sizes().items()}


def _progress(samples: Sequence[Sample], wanted: int) -> str:
    now = samples[-1]
    rate = now["studies"] / now["seconds"]
    left = (wanted - now["studies"]) / rate if rate else 0.0
    return f"{now['studies']:.0f} of {wanted} studies, {rate:.1f}/s, about {left / 60:.0f} min left"


def slope(samples: Sequence[Sample], role: str) -> float:
    """MiB per 1,000 studies over the second half, where caches and pools are full.

    Least squares.
    """
    points = [
        (sample["studies"] / 1000, sample[role])
        for sample in samples[len(samples) // 2 :]
        if role in sample
    ]
    if len({x for x, _ in points}) < 2:
        return 0.0
    return round(statistics.linear_regression(*zip(*points, strict=True)).slope, 2)


def _latencies(street: Street) -> dict[str, float]:
    """From acknowledged to reported, median seconds of the first and of the last tenth of the studies."""
    acknowledged = street.router.books.acknowledged_at
    arrivals = street.pacs.arrivals.by_study
    waited = [arrivals[study][0] - at for study, at in acknowledged.items() if study in arrivals]
    tenth = max(1, len(waited) // 10)
    return {
        "seconds_to_report_first_tenth": round(statistics.median(waited[:tenth]), 2),
        "seconds_to_report_last_tenth": round(statistics.median(waited[-tenth:]), 2),
    }
