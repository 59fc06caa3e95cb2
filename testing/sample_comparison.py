"""A comparison of two invented releases, for pictures: the same numbers each time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from hilum.assemble.agreement import Said, is_flip
from hilum.assemble.pair_statistics import PairStatistics
from hilum.domain import Decision
from hilum.services.campaigns.comparison import Comparison, Discrepancy

FIRST: Final = "chest@1"
SECOND: Final = "chest@2"
STUDIES: Final = 4000
_POINT: Final = 0.5
_LISTED: Final = 100
_SPREAD: Final = 0.06  # standard deviation of the differences
_SHIFT: Final = 0.02
# Each finding with the share of studies that have it.
_FINDINGS: Final = {"pleural_effusion": 0.1, "pneumothorax": 0.2, "cardiomegaly": 0.06}


def sample_comparison() -> Comparison:
    """Return a comparison of 4,000 studies and three findings."""
    randomness = random.Random(26)
    found = {key: PairStatistics(key) for key in _FINDINGS}
    items: list[Discrepancy] = []
    for number in range(STUDIES):
        study = f"1.2.826.0.1.3680043.10.511.9.{number}"
        for key, said in _study(randomness):
            found[key].add(said)
            distance = abs(said[1] - said[0])
            items.append(Discrepancy(is_flip(said), distance, study, key, said[:2], said[2:]))
    return Comparison(
        first=FIRST,
        second=SECOND,
        studies=STUDIES,
        summaries=tuple(item.summary() for item in found.values()),
        discrepancies=tuple(sorted(items, reverse=True)[:_LISTED]),
        untrained=(),
    )


def _study(randomness: random.Random) -> Iterator[tuple[str, Said]]:
    for key, share in _FINDINGS.items():
        alpha, beta = (5.0, 2.0) if randomness.random() < share else (2.0, 9.0)
        first = randomness.betavariate(alpha, beta)
        second = min(max(first + randomness.gauss(_SHIFT, _SPREAD), 0.0), 1.0)
        yield key, (first, second, _decision(first), _decision(second))


def _decision(score: float) -> str:
    return Decision.PRESENT.value if score >= _POINT else Decision.ABSENT.value
