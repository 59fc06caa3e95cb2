"""The words of a result, as types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hilum.evaluate.statistics.delong import PairedDifference
from hilum.evaluate.statistics.reliability import Reliability


@dataclass(frozen=True, slots=True)
class Measured:
    """A number with its 95 % interval. `skipped`: resamples that did not have both classes."""

    value: float
    low: float | None = None
    high: float | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class ThresholdRates:
    """Sensitivity and specificity at a threshold. `name`: where the threshold comes from."""

    name: str
    threshold: float
    sensitivity: Measured
    specificity: Measured
    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int


@dataclass(frozen=True, slots=True)
class SubgroupArea:
    """The AUROC of one class in one group. `is_small`: fewer than 20 positives or negatives."""

    kind: str
    group: str
    positives: int
    negatives: int
    auroc: Measured | None
    is_small: bool


@dataclass(frozen=True, slots=True)
class ClassCurves:
    """Points of plots, at most some 200 each: pairs of the horizontal and the vertical value."""

    roc: Sequence[tuple[float, float]]
    precision_recall: Sequence[tuple[float, float]]
    histogram: Sequence[tuple[float, int, int]]


@dataclass(frozen=True, slots=True)
class ClassResult:
    """One class. `undefined`: why nothing can be measured; empty: it can.

    `delong`: interval of DeLong, for which each case is independent.
    """

    name: str
    finding: str
    positives: int
    negatives: int
    ignored: int
    is_in_mean: bool
    undefined: str = ""
    auroc: Measured | None = None
    delong: tuple[float, float] | None = None
    auprc: Measured | None = None
    thresholds: Sequence[ThresholdRates] = ()
    reliability: Reliability | None = None
    curves: ClassCurves | None = None
    subgroups: Sequence[SubgroupArea] = ()
    difference: PairedDifference | None = None


@dataclass(frozen=True, slots=True)
class MeanResult:
    """The mean over the classes of the protocol that are defined. `classes`: their names."""

    classes: tuple[str, ...]
    auroc: Measured
    auprc: Measured


@dataclass(frozen=True, slots=True)
class Statistics:
    """All numbers of an evaluation. `mean`: None where no class of the protocol is defined.

    `without_score`: cases that have a label and no number for a class, by class.
    """

    classes: tuple[ClassResult, ...]
    mean: MeanResult | None
    mean_difference: Measured | None
    without_score: Mapping[str, int]
    resamples: int
    seed: int
