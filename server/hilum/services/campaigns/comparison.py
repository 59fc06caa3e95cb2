"""Two releases on the studies of a campaign: statistics, and the list of discrepant studies."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from hilum.assemble.agreement import is_flip, said_by_both
from hilum.assemble.pair_statistics import BINS, PairStatistics, PairSummary
from hilum.domain import Decision
from hilum.settings import Settings
from hilum.store.queries.pairs import Pair, Pairs

FORMAT: Final = "hilum/comparison/1.0"
_LISTED: Final = 500
_DECISIONS: Final = (Decision.PRESENT.value, Decision.ABSENT.value)


@dataclass(frozen=True, slots=True, order=True)
class Discrepancy:
    """One finding on one study about which the releases differ.

    Ordered by weight: flips first, then by the difference of the scores.
    """

    is_flip: bool
    distance: float
    study_instance_uid: str
    finding: str
    scores: tuple[float, float]
    decisions: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two releases.

    `studies`: read by both. `discrepancies`: at most 500, the gravest first; `flips`: of all.
    `untrained`: releases whose weights decide nothing.
    """

    first: str
    second: str
    studies: int
    summaries: tuple[PairSummary, ...]
    discrepancies: tuple[Discrepancy, ...]
    untrained: tuple[str, ...]

    @property
    def flips(self) -> int:
        """The number of findings on which both decided, differently."""
        return sum(item.flips for item in self.summaries)


def compare(settings: Settings, campaign_id: int | None, first: str, second: str) -> Comparison:
    """Compare two releases on the studies of a campaign; None: on all studies of the ledger."""
    with contextlib.closing(Pairs(settings.ledger_url)) as pairs:
        return comparison_of(first, second, pairs.pairs(campaign_id, first, second))


def comparison_of(first: str, second: str, pairs: Iterable[Pair]) -> Comparison:
    """Return the statistics of these pairs, in one pass and bounded memory."""
    found: dict[str, PairStatistics] = {}
    worst: list[Discrepancy] = []
    untrained = set[str]()
    studies = 0
    for pair in pairs:
        studies += 1
        untrained |= {item.release for item in (pair.first, pair.second) if not item.is_trained}
        for key, said in said_by_both(pair.first, pair.second).items():
            found.setdefault(key, PairStatistics(key)).add(said)
            item = Discrepancy(
                is_flip(said),
                abs(said[1] - said[0]),
                pair.study_instance_uid,
                key,
                said[:2],
                said[2:],
            )
            if item.distance > 0:
                _keep(worst, item)
    return Comparison(
        first=first,
        second=second,
        studies=studies,
        summaries=tuple(item.summary() for item in found.values()),
        discrepancies=tuple(sorted(worst, reverse=True)),
        untrained=tuple(sorted(untrained)),
    )


def _keep(worst: list[Discrepancy], item: Discrepancy) -> None:
    if len(worst) < _LISTED:
        heapq.heappush(worst, item)
    else:
        heapq.heappushpop(worst, item)


def as_json(found: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON; `docs/archive/compare.md` describes its fields."""
    return {
        "format": FORMAT,
        "first": found.first,
        "second": found.second,
        "studies": found.studies,
        "flips": found.flips,
        "untrained": list(found.untrained),
        "findings": [_summary(item) for item in found.summaries],
        "discrepancies": [
            {
                "study_instance_uid": item.study_instance_uid,
                "finding": item.finding,
                "is_flip": item.is_flip,
                "scores": list(item.scores),
                "decisions": list(item.decisions),
            }
            for item in found.discrepancies
        ],
    }


def _summary(item: PairSummary) -> dict[str, Any]:
    return {
        "finding": item.finding,
        "studies": item.studies,
        "decided": item.decided,
        "flips": item.flips,
        "table": [
            {"first": first, "second": second, "studies": item.table.get((first, second), 0)}
            for first in _DECISIONS
            for second in _DECISIONS
        ],
        "kappa": item.kappa.value,
        "kappa_interval": [item.kappa.low, item.kappa.high],
        "mcnemar_p": item.mcnemar,
        "mean_difference": item.difference,
        "limits_of_agreement": list(item.limits),
        "correlation": item.correlation,
        "scatter": {
            "bins": BINS,
            "counts": [[row, column, count] for (row, column), count in sorted(item.bins.items())],
        },
        "bland_altman": {
            "bins": BINS,
            "counts": [
                [mean, difference, count]
                for (mean, difference), count in sorted(item.spread.items())
            ],
        },
    }
