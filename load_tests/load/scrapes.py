"""Hilum's own metrics during a run.

How long its queues were, and how long things waited and took in each stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
Scrape = Mapping[tuple[str, Labels], float]

# What happens to an image and its study, in order: name in the table, histogram, label.
STRETCHES: tuple[tuple[str, str, str], ...] = (
    ("receive: work", "hilum_receive_seconds", ""),
    ("index: wait", "hilum_index_seconds", ""),
    *(
        (f"{stage}: {what}", f"hilum_stage_{metric}", stage)
        for stage in ("analyse", "assemble", "report", "deliver")
        for what, metric in (("wait", "wait_seconds"), ("work", "seconds"))
    ),
)


def parse(text: str) -> dict[tuple[str, Labels], float]:
    """Prometheus text → value of each sample."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def queues(scrape: Scrape) -> dict[str, float]:
    """`stage state` → open items, over all priorities and destinations."""
    sums: defaultdict[str, float] = defaultdict(float)
    for (name, labels), value in scrape.items():
        if name == "hilum_queue_items":
            named = dict(labels)
            sums[f"{named['stage']} {named['state']}"] += value
    return dict(sums)


def stretches(before: Scrape, after: Scrape) -> dict[str, dict[str, float]]:
    """Between two scrapes: stretch → count, mean, p50 and p99 in seconds.

    A percentile is that of its bucket, interpolated.
    """
    found = {
        name: _distribution(
            _buckets(before, after, metric, stage), _sum(before, after, metric, stage)
        )
        for name, metric, stage in STRETCHES
    }
    return {name: distribution for name, distribution in found.items() if distribution}


def _buckets(before: Scrape, after: Scrape, metric: str, stage: str) -> list[tuple[float, float]]:
    """(upper bound, items up to it) of a histogram's growth, in order."""
    sums: defaultdict[float, float] = defaultdict(float)
    for (name, labels), value in after.items():
        named = dict(labels)
        if name == f"{metric}_bucket" and named.get("stage", "") == stage:
            sums[float(named["le"])] += value - before.get((name, labels), 0.0)
    return sorted(sums.items())


def _sum(before: Scrape, after: Scrape, metric: str, stage: str) -> float:
    keys = [
        key for key in after if key[0] == f"{metric}_sum" and dict(key[1]).get("stage", "") == stage
    ]
    return sum(after[key] - before.get(key, 0.0) for key in keys)


def _distribution(buckets: list[tuple[float, float]], total: float) -> dict[str, float]:
    count = buckets[-1][1] if buckets else 0.0
    if not count:
        return {}
    return {
        "count": count,
        "mean": total / count,
        "p50": quantile(buckets, 0.5),
        "p99": quantile(buckets, 0.99),
    }


def quantile(buckets: list[tuple[float, float]], share: float) -> float:
    """Interpolated in its bucket, as Prometheus does.

    The last finite bound where it lies beyond.
    """
    wanted = share * buckets[-1][1]
    for (below, fewer), (bound, items) in pairwise([(0.0, 0.0), *buckets]):
        if items >= wanted:
            return (
                below
                if bound == float("inf")
                else below + (bound - below) * (wanted - fewer) / max(items - fewer, 1e-9)
            )
    return buckets[-1][0]
