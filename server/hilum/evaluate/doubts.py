"""Omissions and doubts of an evaluation, in sentences for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator

from hilum.evaluate.evaluation import Evaluation
from hilum.evaluate.measure import FEWEST
from hilum.evaluate.measures import ClassResult


def doubts_of(found: Evaluation) -> list[str]:
    """Return each doubt with its name and count."""
    return [
        *_of_release(found),
        *_of_partners(found),
        *_of_classes(found),
        *_of_labels(found),
        *(f"not read, {name}: {count} images" for name, count in found.not_read.items()),
    ]


def _of_release(found: Evaluation) -> Iterator[str]:
    if found.release["trained"] == "no":
        yield f"{found.release['name']} has untrained weights: its scores mean nothing"


def _of_partners(found: Evaluation) -> Iterator[str]:
    counts = found.cases.counts
    if counts.missing:
        yield (
            f"{counts.missing} labelled cases have no score, such as"
            f" {', '.join(counts.missing_names)}"
        )
    if counts.unlabelled:
        yield (
            f"{counts.unlabelled} images have scores and no label, such as"
            f" {', '.join(counts.unlabelled_names)}"
        )
    if counts.disagreeing:
        yield (
            f"{counts.disagreeing} studies have images with different labels: one positive image"
            " counts"
        )


def _of_classes(found: Evaluation) -> Iterator[str]:
    for name, finding in found.cases.left_out.items():
        yield f"{name}: left out, {found.release['name']} has no finding {finding}"
    for item in found.statistics.classes:
        if item.undefined:
            yield f"{item.name}: undefined, {item.undefined}; it is in no mean"
        elif item.auroc and item.auroc.skipped:
            yield f"{item.name}: resamples without both classes, skipped: {item.auroc.skipped}"
    yield from _of_sizes(found)


def _of_sizes(found: Evaluation) -> Iterator[str]:
    small = [item.name for item in found.statistics.classes if _is_small(item)]
    if small:
        yield f"fewer than {FEWEST} positive or negative cases, rough intervals: {', '.join(small)}"
    for name, count in found.statistics.without_score.items():
        yield f"{name}: {count} cases have a label and no score"


def _of_labels(found: Evaluation) -> Iterator[str]:
    doubts = found.truth.doubts
    for name in doubts.absent:
        yield f"{name}: left out, the labels have no such column"
    for name, count in doubts.cells.items():
        yield f"{name}: {count} cells are no label (1, 0, -1 or empty), and count as none"
    for name, count in doubts.left_out.items():
        if count:
            yield f"{name}: {count}"
    if doubts.columns:
        yield f"columns that hold no labels: {', '.join(doubts.columns)}"


def _is_small(item: ClassResult) -> bool:
    return not item.undefined and min(item.positives, item.negatives) < FEWEST
