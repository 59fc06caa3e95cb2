"""The statistics of two releases on the same studies, one pass, in bounded memory. Pure.

Kappa with its standard error: Fleiss, Cohen and Everitt (Psychological Bulletin 72, 1969).
McNemar's test, exact: Fagerland and others (BMC Medical Research Methodology 13:91, 2013).
Limits of agreement: Bland and Altman (The Lancet 327, 1986).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from hilum.assemble.agreement import Said, is_decided
from hilum.domain import Decision

BINS: Final = 40
_Z: Final = 1.959963984540054  # of a two-sided 95 % interval
_EXACT: Final = 2000  # discordant pairs up to which McNemar's test is exact


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval; None: it cannot be estimated."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PairSummary:
    """The agreement of two releases about one finding.

    `table`: studies by the decision of the first and of the second release. `flips`: decided by
    both, differently. `difference`: mean of second minus first score; `limits`: 95 % limits of
    agreement. `mcnemar`: two-sided p that both say *present* equally often. `bins`: studies by
    score, BINS by BINS, first release along the rows.
    """

    finding: str
    studies: int
    decided: int
    flips: int
    table: dict[tuple[str, str], int]
    kappa: Interval
    mcnemar: float | None
    difference: float
    limits: tuple[float, float]
    correlation: float | None
    bins: dict[tuple[int, int], int]
    spread: dict[tuple[int, int], int]


@dataclass(slots=True)
class _Moments:
    """Mean and sum of squares (Welford, Technometrics 4, 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample; 0 of fewer than two values."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0


@dataclass(slots=True)
class PairStatistics:
    """The sums of one finding. Scores are from 0 to 1."""

    finding: str
    studies: int = 0
    table: Counter[tuple[str, str]] = field(default_factory=Counter)
    bins: Counter[tuple[int, int]] = field(default_factory=Counter)
    spread: Counter[tuple[int, int]] = field(default_factory=Counter)
    _first: _Moments = field(default_factory=_Moments)
    _second: _Moments = field(default_factory=_Moments)
    _difference: _Moments = field(default_factory=_Moments)
    _product: float = 0.0

    def add(self, said: Said) -> None:
        """Count one study."""
        first, second, *_ = said
        self.studies += 1
        before = self._first.mean
        self._first.add(first)
        self._second.add(second)
        self._difference.add(second - first)
        # the co-moment, updated by the mean before and the mean after (Welford)
        self._product += (first - before) * (second - self._second.mean)
        self.bins[_bin(first), _bin(second)] += 1
        self.spread[_bin((first + second) / 2), _bin((second - first + 1) / 2)] += 1
        if is_decided(said):
            self.table[said[2], said[3]] += 1

    def summary(self) -> PairSummary:
        """Return the statistics of all studies so far, at least one."""
        deviation = self._difference.deviation
        mean = self._difference.mean
        return PairSummary(
            finding=self.finding,
            studies=self.studies,
            decided=self.table.total(),
            flips=self._discordant[0] + self._discordant[1],
            table=dict(self.table),
            kappa=kappa_of(self.table),
            mcnemar=mcnemar(*self._discordant) if self.table else None,
            difference=mean,
            limits=(mean - _Z * deviation, mean + _Z * deviation),
            correlation=self._correlation,
            bins=dict(self.bins),
            spread=dict(self.spread),
        )

    @property
    def _discordant(self) -> tuple[int, int]:
        present = Decision.PRESENT.value
        absent = Decision.ABSENT.value
        return self.table[present, absent], self.table[absent, present]

    @property
    def _correlation(self) -> float | None:
        scale = math.sqrt(self._first.squares * self._second.squares)
        return max(-1.0, min(1.0, self._product / scale)) if scale > 0 else None


def kappa_of(table: Counter[tuple[str, str]]) -> Interval:
    """Return Cohen's kappa with its interval; None where one class alone occurs."""
    total = table.total()
    classes = sorted({word for pair in table for word in pair})
    if not total or len(classes) < 2:
        return Interval(None)
    shares = {pair: count / total for pair, count in table.items()}
    rows = {word: sum(shares.get((word, other), 0.0) for other in classes) for word in classes}
    columns = {word: sum(shares.get((other, word), 0.0) for other in classes) for word in classes}
    observed = sum(shares.get((word, word), 0.0) for word in classes)
    expected = sum(rows[word] * columns[word] for word in classes)
    if expected >= 1.0:
        return Interval(None)
    value = (observed - expected) / (1 - expected)
    error = math.sqrt(max(0.0, _kappa_variance(shares, rows, columns, value, expected)) / total) / (
        1 - expected
    )
    return Interval(value, max(-1.0, value - _Z * error), min(1.0, value + _Z * error))


def _kappa_variance(
    shares: dict[tuple[str, str], float],
    rows: dict[str, float],
    columns: dict[str, float],
    value: float,
    expected: float,
) -> float:
    """Return the large-sample variance of Fleiss, Cohen and Everitt, times n (1 - expected)²."""
    same = sum(
        shares.get((word, word), 0.0) * (1 - (rows[word] + columns[word]) * (1 - value)) ** 2
        for word in rows
    )
    other = (1 - value) ** 2 * sum(
        share * (columns[one] + rows[two]) ** 2
        for (one, two), share in shares.items()
        if one != two
    )
    return same + other - (value - expected * (1 - value)) ** 2


def mcnemar(first_only: int, second_only: int) -> float:
    """Return the two-sided p of McNemar's test; 1.0 without discordant pairs.

    It is exact up to 2,000 discordant pairs, else by chi-square with continuity correction.
    """
    total = first_only + second_only
    if not total:
        return 1.0
    if total > _EXACT:
        statistic = max(0.0, abs(first_only - second_only) - 1) ** 2 / total
        return math.erfc(math.sqrt(statistic / 2))
    fewer = min(first_only, second_only)
    tail = sum(math.comb(total, number) for number in range(fewer + 1))
    return min(1.0, 2.0 * float(tail / 2**total))


def _bin(score: float) -> int:
    return min(BINS - 1, max(0, int(score * BINS)))
