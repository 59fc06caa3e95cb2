"""The judgement whether one network may replace another.

Changes of scores and of the area under the ROC curve are held against limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hilum.domain import Release
from hilum.models.manifest.tables import QuantisationTable
from hilum.scores import scores_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class LabelChange:
    """One label: the largest change of a score, and the areas before and after.

    Areas exist where cases of both classes have the truth.
    """

    key: str
    largest_score_difference: float
    auc_before: float | None
    auc_after: float | None

    @property
    def auc_drop(self) -> float | None:
        """The fall of the area; positive where it fell."""
        return (
            None
            if self.auc_before is None or self.auc_after is None
            else self.auc_before - self.auc_after
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """The changes of all labels.

    Accepted where `problems` is empty.
    """

    cases: int
    labels: tuple[LabelChange, ...]
    problems: tuple[str, ...]

    @property
    def is_accepted(self) -> bool:
        """Whether every limit holds."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The judgement as a report has it."""
        changes = [{**asdict(change), "auc_drop": change.auc_drop} for change in self.labels]
        return {
            "is_accepted": self.is_accepted,
            "problems": list(self.problems),
            "cases": self.cases,
            "labels": changes,
        }


def judge(
    before: Array,
    after: Array,
    truth: Mapping[str, Array] | None,
    release: Release,
    limits: QuantisationTable,
) -> Judgement:
    """Judge two sets of logits (n, L) of the same cases.

    `truth` None: a person has decided that areas are not compared. Masked labels do not count.
    """
    if not np.isfinite(after).all():
        return Judgement(len(before), (), ("a logit is infinite or not a number",))
    old = _scores(before, release)
    new = _scores(after, release)
    changes = tuple(
        _change(label.key, old[:, position], new[:, position], (truth or {}).get(label.key))
        for position, label in enumerate(release.labels)
        if not label.is_masked
    )
    problems = tuple(_problems(changes, limits, is_compared=truth is not None))
    return Judgement(len(before), changes, problems)


def _scores(logits: Array, release: Release) -> Array:
    return np.array([scores_of(row, release) for row in logits.tolist()])


def _change(key: str, old: Array, new: Array, truth: Array | None) -> LabelChange:
    areas = (None, None) if truth is None else (auc(old, truth), auc(new, truth))
    return LabelChange(key, float(np.abs(new - old).max()), *areas)


def _problems(
    changes: tuple[LabelChange, ...], limits: QuantisationTable, *, is_compared: bool
) -> Iterator[str]:
    for change in changes:
        if not change.largest_score_difference <= limits.maximum_score_difference:
            moved = change.largest_score_difference
            allowed = limits.maximum_score_difference
            yield f"{change.key}: a score moves by {moved:.3g}; {allowed:g} is allowed"
        if change.auc_drop is not None and not change.auc_drop <= limits.maximum_auc_drop:
            yield (
                f"{change.key}: the area under the ROC curve falls by {change.auc_drop:.3g};"
                f" {limits.maximum_auc_drop:g} is allowed"
            )
    if is_compared and all(change.auc_drop is None for change in changes):
        yield (
            "no label has positive and negative cases: the areas under the ROC curve cannot be"
            " compared"
        )


def auc(scores: Array, truth: Array) -> float | None:
    """Return the area under the ROC curve, 0 to 1; None where a class has no case.

    `scores` (n,), `truth` (n,) 1, 0 or NaN (unknown). The area is the rate at which a positive case
    scores higher than a negative one (Mann and Whitney 1947). Ties count half.
    """
    positive = scores[truth == 1]
    negative = np.sort(scores[truth == 0])
    if not len(positive) or not len(negative):
        return None
    below = np.searchsorted(negative, positive, side="left") + np.searchsorted(
        negative, positive, side="right"
    )
    return float(below.mean() / (2 * len(negative)))
