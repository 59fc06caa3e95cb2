"""Measures the cases: by class, at thresholds, in subgroups, with intervals from one bootstrap."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hilum.evaluate.cases.cases import EvaluatedCases
from hilum.evaluate.measures import (
    ClassCurves,
    ClassResult,
    MeanResult,
    Measured,
    Statistics,
    SubgroupArea,
    ThresholdRates,
)
from hilum.evaluate.statistics import areas as ranking
from hilum.evaluate.statistics.areas import Floats, Truths
from hilum.evaluate.statistics.bootstrap import (
    CountedRates,
    RankedCases,
    Rows,
    Weights,
    percentile_interval,
    resamples,
)
from hilum.evaluate.statistics.delong import delong_interval, paired_difference
from hilum.evaluate.statistics.reliability import reliability

RESAMPLES: Final = 1000
SEED: Final = 20170209
FEWEST: Final = 20
_POINTS: Final = 200
_HISTOGRAM: Final = 20
MANIFEST: Final = "manifest"
HALF: Final = "0.5"
YOUDEN: Final = "youden"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How intervals are drawn."""

    resamples: int = RESAMPLES
    seed: int = SEED


@dataclass(frozen=True, slots=True)
class _Measure:
    """An area that is drawn again: of one class, in one group or in all."""

    number: int
    kind: str
    group: str
    rows: Rows
    truth: Truths
    scores: Floats


def measure(
    cases: EvaluatedCases,
    in_mean: Sequence[str],
    operating_points: Mapping[str, float],
    bootstrap: Bootstrap,
    against: Floats | None = None,
) -> Statistics:
    """Return all numbers. `against`: scores of another release, NaN where `cases` has NaN."""
    names = set(in_mean or cases.classes)
    defined, areas = _areas(cases)
    thresholds = [_thresholds(item, cases, operating_points) for item in defined]
    drawn = _draw(cases, areas, thresholds, bootstrap, against)
    by_class = {item.number: place for place, item in enumerate(defined)}
    results = []
    for number, name in enumerate(cases.classes):
        base = _base(cases, number, is_in_mean=name in names)
        if number not in by_class:
            results.append(base)
            continue
        place = by_class[number]
        results.append(_full(base, defined[place], areas, thresholds[place], drawn, place))
    if against is not None:
        results = [_paired(item, number, cases, against) for number, item in enumerate(results)]
    mean, difference = _means(results, drawn, by_class, _areas_against(defined, against))
    return Statistics(
        classes=tuple(results),
        mean=mean,
        mean_difference=difference,
        without_score=_without_score(cases),
        resamples=bootstrap.resamples,
        seed=bootstrap.seed,
    )


def _without_score(cases: EvaluatedCases) -> dict[str, int]:
    missing = (np.isnan(cases.scores) & ~np.isnan(cases.truth)).sum(axis=0)
    return {name: int(count) for name, count in zip(cases.classes, missing, strict=True) if count}


def _base(cases: EvaluatedCases, number: int, *, is_in_mean: bool) -> ClassResult:
    rows = _usable(cases, number)
    positives = int(cases.truth[rows, number].sum())
    negatives = len(rows) - positives
    undefined = ""
    if not len(rows):
        undefined = "no case has a label and a score"
    elif not positives:
        undefined = "no positive case"
    elif not negatives:
        undefined = "no negative case"
    return ClassResult(
        name=cases.classes[number],
        finding=cases.findings[number],
        positives=positives,
        negatives=negatives,
        ignored=len(cases.truth) - len(rows),
        is_in_mean=is_in_mean,
        undefined=undefined,
    )


def _usable(cases: EvaluatedCases, number: int) -> Rows:
    return np.flatnonzero(~np.isnan(cases.truth[:, number]) & ~np.isnan(cases.scores[:, number]))


def _areas(cases: EvaluatedCases) -> tuple[list[_Measure], list[_Measure]]:
    """Return the areas of all defined classes, and these followed by those of subgroups."""
    whole = []
    for number in range(len(cases.classes)):
        item = _measure(cases, number, "", "", _usable(cases, number))
        if item.truth.any() and not item.truth.all():
            whole.append(item)
    return whole, [*whole, *(part for item in whole for part in _parts(cases, item))]


def _parts(cases: EvaluatedCases, item: _Measure) -> Iterator[_Measure]:
    """Yield the areas of one class in each subgroup."""
    for kind, groups in cases.groups.items():
        of_row = np.array(groups)[item.rows]
        for group in sorted(set(groups)):
            rows = item.rows[of_row == group]
            if len(rows):
                yield _measure(cases, item.number, kind, group, rows)


def _measure(cases: EvaluatedCases, number: int, kind: str, group: str, rows: Rows) -> _Measure:
    truth = cases.truth[rows, number] == 1
    return _Measure(number, kind, group, rows, truth, cases.scores[rows, number])


def _thresholds(
    item: _Measure, cases: EvaluatedCases, operating_points: Mapping[str, float]
) -> list[tuple[str, float]]:
    found = []
    if (point := operating_points.get(cases.findings[item.number])) is not None:
        found.append((MANIFEST, point))
    if item.scores.min() >= 0 and item.scores.max() <= 1:
        found.append((HALF, 0.5))
    if (best := ranking.youden(item.truth, item.scores)) is not None:
        found.append((YOUDEN, best))
    return found


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Values of all resamples: rows are resamples.

    `areas`, `averages`: a column a measure. `rates`: two columns a threshold, over all classes.
    `second`: areas of the other release, a column a defined class; None: there is none.
    """

    areas: Floats
    averages: Floats
    rates: Floats
    first_rate: Sequence[int]
    second: Floats | None


def _draw(
    cases: EvaluatedCases,
    areas: Sequence[_Measure],
    thresholds: Sequence[Sequence[tuple[str, float]]],
    bootstrap: Bootstrap,
    against: Floats | None,
) -> _Drawn:
    ranked = _ranked(areas)
    other = _ranked_against(areas[: len(thresholds)], against)
    rates = CountedRates(*_rates(cases, areas, thresholds))
    parts = [
        (*_both(ranked, weights), rates.rates(weights), _both(other, weights)[0])
        for weights in resamples(cases.patients, bootstrap.resamples, bootstrap.seed)
    ]
    found, averages, shares, second = map(np.concatenate, zip(*parts, strict=True))
    starts = _first_columns(thresholds)
    return _Drawn(found, averages, shares, starts, None if against is None else second)


def _ranked(areas: Sequence[_Measure]) -> list[RankedCases]:
    return [
        RankedCases(item.rows, item.truth, item.scores, has_average=not item.kind) for item in areas
    ]


def _first_columns(thresholds: Sequence[Sequence[tuple[str, float]]]) -> list[int]:
    """Return the first column of rates of each class: there are two a threshold."""
    starts: list[int] = np.cumsum([0, *(2 * len(item) for item in thresholds)]).tolist()
    return starts


def _both(ranked: Sequence[RankedCases], weights: Weights) -> tuple[Floats, Floats]:
    """Return areas and average precisions: a row a resample, a column a measure."""
    found = [item.areas(weights) for item in ranked]
    empty = np.empty((len(weights), 0))
    return (
        np.column_stack([item[0] for item in found] or [empty]),
        np.column_stack([item[1] for item in found] or [empty]),
    )


def _ranked_against(whole: Sequence[_Measure], against: Floats | None) -> list[RankedCases]:
    if against is None:
        return []
    return [RankedCases(item.rows, item.truth, against[item.rows, item.number]) for item in whole]


def _areas_against(whole: Sequence[_Measure], against: Floats | None) -> list[float]:
    """Return the other release's area of each defined class; none: there is no other release."""
    if against is None:
        return []
    found = (ranking.auroc(item.truth, against[item.rows, item.number]) for item in whole)
    return [area for area in found if area is not None]


def _rates(
    cases: EvaluatedCases,
    areas: Sequence[_Measure],
    thresholds: Sequence[Sequence[tuple[str, float]]],
) -> tuple[list[Truths], list[Truths]]:
    counted = []
    among = []
    for item, found in zip(areas, thresholds, strict=False):  # subgroups follow, without rates
        for _, threshold in found:
            for hits, of in _outcomes(item, threshold):
                counted.append(_spread(hits, item.rows, len(cases.truth)))
                among.append(_spread(of, item.rows, len(cases.truth)))
    return counted, among


def _outcomes(item: _Measure, threshold: float) -> Iterator[tuple[Truths, Truths]]:
    called = item.scores >= threshold
    yield item.truth & called, item.truth
    yield ~item.truth & ~called, ~item.truth


def _spread(values: Truths, rows: Rows, length: int) -> Truths:
    spread = np.zeros(length, dtype=np.bool_)
    spread[rows] = values
    return spread


def _full(
    base: ClassResult,
    item: _Measure,
    areas: Sequence[_Measure],
    thresholds: Sequence[tuple[str, float]],
    drawn: _Drawn,
    place: int,
) -> ClassResult:
    rates = drawn.rates[:, drawn.first_rate[place] :]
    average = ranking.average_precision(item.truth, item.scores)
    return dataclasses.replace(
        base,
        auroc=_measured(ranking.auroc(item.truth, item.scores), drawn.areas[:, place]),
        auprc=_measured(average, drawn.averages[:, place]),
        delong=delong_interval(item.truth, item.scores),
        thresholds=_at_thresholds(item, thresholds, rates),
        reliability=reliability(item.truth, item.scores),
        curves=_curves(item),
        subgroups=_subgroups(item.number, areas, drawn.areas),
    )


def _at_thresholds(
    item: _Measure, thresholds: Sequence[tuple[str, float]], drawn: Floats
) -> tuple[ThresholdRates, ...]:
    return tuple(
        _at_threshold(item, name, threshold, drawn[:, 2 * place : 2 * place + 2])
        for place, (name, threshold) in enumerate(thresholds)
    )


def _subgroups(number: int, areas: Sequence[_Measure], drawn: Floats) -> tuple[SubgroupArea, ...]:
    return tuple(
        _subgroup(each, drawn[:, column])
        for column, each in enumerate(areas)
        if each.number == number and each.kind
    )


def _measured(value: float | None, drawn: Floats) -> Measured | None:
    if value is None:
        return None
    interval = percentile_interval(drawn)
    return Measured(value, interval.low, interval.high, interval.skipped)


def _at_threshold(item: _Measure, name: str, threshold: float, drawn: Floats) -> ThresholdRates:
    (hits, positives), (right, negatives) = (
        (int(counted.sum()), int(of.sum())) for counted, of in _outcomes(item, threshold)
    )
    return ThresholdRates(
        name=name,
        threshold=threshold,
        sensitivity=_share(hits, positives, drawn[:, 0]),
        specificity=_share(right, negatives, drawn[:, 1]),
        true_positives=hits,
        false_positives=negatives - right,
        true_negatives=right,
        false_negatives=positives - hits,
    )


def _share(count: int, of: int, drawn: Floats) -> Measured:
    interval = percentile_interval(drawn)
    return Measured(count / of, interval.low, interval.high, interval.skipped)


def _subgroup(item: _Measure, drawn: Floats) -> SubgroupArea:
    positives = int(item.truth.sum())
    negatives = len(item.truth) - positives
    return SubgroupArea(
        kind=item.kind,
        group=item.group,
        positives=positives,
        negatives=negatives,
        auroc=_measured(ranking.auroc(item.truth, item.scores), drawn),
        is_small=min(positives, negatives) < FEWEST,
    )


def _curves(item: _Measure) -> ClassCurves:
    found = ranking.curves(item.truth, item.scores)
    return ClassCurves(
        roc=[(0.0, 0.0), *_thinned(found.false_positive_rate, found.sensitivity)],
        precision_recall=_thinned(found.sensitivity, found.precision),
        histogram=_histogram(item, _edges(item.scores)),
    )


def _edges(scores: Floats) -> Floats:
    """Return the ends of equal bins: from 0 to 1, where all scores are between."""
    lowest = float(scores.min())
    highest = float(scores.max())
    if lowest >= 0 and highest <= 1:
        return np.linspace(0.0, 1.0, _HISTOGRAM + 1)
    return np.linspace(lowest, max(highest, lowest + 1e-9), _HISTOGRAM + 1)


def _histogram(item: _Measure, edges: Floats) -> list[tuple[float, int, int]]:
    positive = np.histogram(item.scores[item.truth], edges)[0]
    negative = np.histogram(item.scores[~item.truth], edges)[0]
    return list(zip(edges.tolist()[:-1], positive.tolist(), negative.tolist(), strict=True))


def _thinned(across: Floats, up: Floats) -> list[tuple[float, float]]:
    step = max(1, len(across) // _POINTS)
    places = sorted({*range(0, len(across), step), len(across) - 1})
    return [(round(float(across[place]), 5), round(float(up[place]), 5)) for place in places]


def _value(found: Sequence[Measured | None]) -> float:
    return float(np.mean([item.value for item in found if item]))


def _means(
    results: Sequence[ClassResult],
    drawn: _Drawn,
    by_class: Mapping[int, int],
    seconds: Sequence[float],
) -> tuple[MeanResult | None, Measured | None]:
    """Return the mean over defined classes, and the difference of the other release's mean.

    `seconds`: the other release's area of each defined class.
    """
    used = [
        (by_class[number], item)
        for number, item in enumerate(results)
        if item.is_in_mean and number in by_class
    ]
    if not used:
        return None, None
    places = [place for place, _ in used]
    areas = drawn.areas[:, places].mean(axis=1)
    averages = drawn.averages[:, places].mean(axis=1)
    auroc = _measured(_value([item.auroc for _, item in used]), areas)
    auprc = _measured(_value([item.auprc for _, item in used]), averages)
    if auroc is None or auprc is None:
        return None, None
    mean = MeanResult(tuple(item.name for _, item in used), auroc, auprc)
    if drawn.second is None:
        return mean, None
    apart = drawn.second[:, places].mean(axis=1) - areas
    difference = float(np.mean([seconds[place] for place in places])) - auroc.value
    return mean, _measured(difference, apart)


def _paired(item: ClassResult, number: int, cases: EvaluatedCases, against: Floats) -> ClassResult:
    if item.undefined:
        return item
    rows = _usable(cases, number)
    truth = cases.truth[rows, number] == 1
    found = paired_difference(truth, cases.scores[rows, number], against[rows, number])
    return dataclasses.replace(item, difference=found)
