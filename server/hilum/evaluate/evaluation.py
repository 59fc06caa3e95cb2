"""An evaluation: its numbers, its rules, and where it left its protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hilum.evaluate.cases.cases import EvaluatedCases
from hilum.evaluate.cases.scores import ScoreTable
from hilum.evaluate.cases.truth import LabelChoices, TruthTable
from hilum.evaluate.measures import ClassResult, Measured, Statistics, SubgroupArea, ThresholdRates
from hilum.evaluate.protocol.leaderboard import Comparability, comparability
from hilum.evaluate.protocol.protocol import OWN, Protocol
from hilum.evaluate.statistics.delong import PairedDifference
from hilum.evaluate.statistics.reliability import Reliability

FORMAT: Final = "hilum/evaluation/1.0"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that the result file and the page say.

    `rules`: policy, empty labels, rows, split, views. `release`: name, digests and source of the
    scores, as far as they are known. `deviations`: where this is not the protocol as published.
    """

    protocol: Protocol
    rules: Mapping[str, str]
    release: Mapping[str, str]
    against: Mapping[str, str] | None
    label_files: Mapping[str, str]
    truth: TruthTable
    cases: EvaluatedCases
    statistics: Statistics
    not_read: Mapping[str, int]
    deviations: tuple[str, ...]
    comparable_with: tuple[Comparability, ...]


def rules_of(protocol: Protocol, choices: LabelChoices) -> dict[str, str]:
    """Return the rules that hold, by name."""
    return {
        "uncertain": choices.uncertain or protocol.uncertain,
        "blank": choices.blank or protocol.blank,
        "rows": choices.rows or protocol.rows,
        "views": ",".join(choices.views or protocol.views) or "all",
    }


def deviations_of(
    protocol: Protocol, choices: LabelChoices, truth: TruthTable, cases: EvaluatedCases
) -> list[str]:
    """Return where an evaluation left its protocol: own labels have none to leave."""
    if protocol.name == OWN:
        return []
    return [*_chosen(protocol, choices), *_incomplete(protocol, truth, cases)]


def _chosen(protocol: Protocol, choices: LabelChoices) -> Iterator[str]:
    rules = {"uncertain": protocol.uncertain, "blank": protocol.blank, "rows": protocol.rows}
    for name, usual in rules.items():
        chosen = getattr(choices, name)
        if chosen and chosen != usual:
            yield f"{name} labels by {chosen}, the protocol has {usual}"
    if choices.views:
        yield f"views {','.join(choices.views)} alone"
    if choices.split == "all":
        yield "all rows instead of the split"


def _incomplete(protocol: Protocol, truth: TruthTable, cases: EvaluatedCases) -> Iterator[str]:
    wanted = protocol.split.images
    if wanted and len(truth.cases) != wanted:
        yield f"{len(truth.cases)} labelled cases, the split has {wanted}"
    if cases.counts.missing:
        yield f"{cases.counts.missing} labelled cases have no score"
    for name in protocol.classes:
        if name in cases.left_out:
            yield f"no score for {name}"
    yield from _other_unit(protocol, cases)


def _other_unit(protocol: Protocol, cases: EvaluatedCases) -> Iterator[str]:
    expected = protocol.aggregation if protocol.unit == "study" else "none"
    if (cases.unit, cases.aggregation) != (protocol.unit, expected):
        yield (
            f"a case is a {cases.unit} (aggregation {cases.aggregation}), the protocol has"
            f" {protocol.unit} ({expected})"
        )


def beside(
    protocol: Protocol, deviations: list[str], statistics: Statistics, table: ScoreTable
) -> tuple[Comparability, ...]:
    """Return which published numbers may stand beside the result, and why others may not."""
    reasons = list(deviations)
    if undefined := [
        item.name for item in statistics.classes if item.is_in_mean and item.undefined
    ]:
        reasons.append(f"undefined: {', '.join(undefined)}")
    if table.is_trained is False:
        reasons.append("the weights are untrained")
    return tuple(comparability(protocol, reasons))


def as_json(found: Evaluation) -> dict[str, Any]:
    """Return the result as JSON; `docs/models/evaluate.md` describes its fields."""
    statistics = found.statistics
    return {
        "format": FORMAT,
        "protocol": _protocol(found),
        "label_files": dict(found.label_files),
        "release": dict(found.release),
        "against": dict(found.against) if found.against else None,
        "counts": {**_counts(found), **_left_out(found)},
        "bootstrap": {
            "resamples": statistics.resamples,
            "seed": statistics.seed,
            "of": found.cases.counts.patient_key,
        },
        "mean": _mean(statistics),
        "classes": [_class(item) for item in statistics.classes],
        "deviations": list(found.deviations),
        "comparable_with": [_comparable(item) for item in found.comparable_with],
    }


def _comparable(item: Comparability) -> dict[str, Any]:
    return {
        "system": item.system,
        "auroc_percent": item.auroc,
        "comparable": item.is_comparable,
        "why_not": list(item.reasons),
    }


def _protocol(found: Evaluation) -> dict[str, str]:
    return {
        "name": found.protocol.name,
        "version": found.protocol.version,
        "title": found.protocol.title,
        "source": found.protocol.source,
        "split": found.truth.split,
        **found.rules,
        "unit": found.cases.unit,
        "aggregation": found.cases.aggregation,
    }


def _counts(found: Evaluation) -> dict[str, Any]:
    counts = found.cases.counts
    return {
        "cases": len(found.cases.truth),
        "images": counts.images,
        "studies": counts.studies,
        "patients": counts.patients,
        "patient_key": counts.patient_key,
        "labelled_without_score": counts.missing,
        "labelled_without_score_first": list(counts.missing_names),
        "scored_without_label": counts.unlabelled,
        "scored_without_label_first": list(counts.unlabelled_names),
        "studies_with_different_labels": counts.disagreeing,
    }


def _left_out(found: Evaluation) -> dict[str, Any]:
    doubts = found.truth.doubts
    return {
        "not_read": dict(found.not_read),
        "cases_without_score_by_class": dict(found.statistics.without_score),
        "labels_left_out": dict(doubts.left_out),
        "unknown_cells": dict(doubts.cells),
        "columns_that_are_no_labels": list(doubts.columns),
        "classes_without_column": list(doubts.absent),
        "classes_without_finding": dict(found.cases.left_out),
    }


def _mean(statistics: Statistics) -> dict[str, Any] | None:
    mean = statistics.mean
    if mean is None:
        return None
    return {
        "classes": list(mean.classes),
        "auroc": _measured(mean.auroc),
        "auprc": _measured(mean.auprc),
        "difference": _measured(statistics.mean_difference),
    }


def _class(item: ClassResult) -> dict[str, Any]:
    return {
        "class": item.name,
        "finding": item.finding,
        "in_mean": item.is_in_mean,
        "positives": item.positives,
        "negatives": item.negatives,
        "ignored": item.ignored,
        "undefined": item.undefined or None,
        "auroc": _measured(item.auroc),
        "auroc_delong_interval": list(item.delong) if item.delong else None,
        "auprc": _measured(item.auprc),
        "thresholds": [_threshold(each) for each in item.thresholds],
        "calibration": _calibration(item.reliability),
        "subgroups": [_subgroup(each) for each in item.subgroups],
        "difference": _difference(item.difference),
    }


def _measured(item: Measured | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {"value": item.value, "interval": [item.low, item.high], "skipped": item.skipped}


def _threshold(item: ThresholdRates) -> dict[str, Any]:
    return {
        "of": item.name,
        "threshold": item.threshold,
        "sensitivity": _measured(item.sensitivity),
        "specificity": _measured(item.specificity),
        "true_positives": item.true_positives,
        "false_positives": item.false_positives,
        "true_negatives": item.true_negatives,
        "false_negatives": item.false_negatives,
    }


def _calibration(item: Reliability | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {
        "expected_calibration_error": item.expected_calibration_error,
        "brier": item.brier,
        "bins": [
            {"cases": each.cases, "mean_score": each.score, "positive": each.positive}
            for each in item.bins
        ],
    }


def _subgroup(item: SubgroupArea) -> dict[str, Any]:
    return {
        "of": item.kind,
        "group": item.group,
        "positives": item.positives,
        "negatives": item.negatives,
        "auroc": _measured(item.auroc),
        "too_small": item.is_small,
    }


def _difference(item: PairedDifference | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {
        "first": item.first,
        "second": item.second,
        "difference": item.difference,
        "interval": [item.low, item.high],
        "p": item.p,
    }
