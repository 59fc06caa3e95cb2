"""From the scores of the images to one finding a label.

Aggregation over views, then the decision (pure).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hilum.domain import Decision, Finding, Label, Reading, Release
from hilum.scores import Numbers, probabilities_of, scores_of

_FRONTAL: Final = ("PA", "AP")


@dataclass(frozen=True, slots=True)
class ImageScores:
    """The scores of one image, label by label in the order of the release.

    `member_scores`: the same for each member of an ensemble.
    """

    sop_instance_uid: str
    view: str | None
    logits: Numbers
    scores: Numbers
    probabilities: Numbers | None
    member_scores: tuple[Numbers, ...] = ()


class _Said(NamedTuple):
    """One label over all images: the numbers, and the images that they come from."""

    logit: float
    score: float
    probability: float | None
    sources: tuple[str, ...]
    member_scores: tuple[float, ...] = ()


def score_image(reading: Reading, release: Release) -> ImageScores:
    """Scores of one analysed reading.

    Raises ValueError when its logits cannot be this release's.
    """
    logits = reading.logits or ()
    if len(logits) != len(release.labels):
        raise ValueError(
            f"{release.id} has {len(release.labels)} labels, the reading {reading.id} holds"
            f" {len(logits)} logits"
        )
    return ImageScores(
        sop_instance_uid=reading.sop_instance_uid,
        view=reading.view,
        logits=tuple(map(float, logits)),
        scores=scores_of(logits, release),
        probabilities=probabilities_of(logits, release),
        member_scores=tuple(scores_of(member, release) for member in reading.member_logits or ()),
    )


def find(images: Sequence[ImageScores], release: Release) -> tuple[Finding, ...]:
    """One finding a label that is not masked, in the order of the release.

    `images` in the order of the study, at least one.
    """
    if release.aggregation not in AGGREGATIONS:
        raise ValueError(
            f"unknown aggregation {release.aggregation!r}; known: {', '.join(AGGREGATIONS)}"
        )
    aggregate = AGGREGATIONS[release.aggregation]
    uids = tuple([image.sop_instance_uid for image in images])
    shown = [
        (position, label) for position, label in enumerate(release.labels) if not label.is_masked
    ]
    return tuple(
        [_finding(label, aggregate(images, position, uids), release) for position, label in shown]
    )


def decide(score: float, operating_point: float | None, *, is_trained: bool) -> Decision:
    """Present when `score >= operating_point`.

    Untrained weights decide nothing, nor does a label without operating point.
    """
    if operating_point is None or not is_trained:
        return Decision.UNDECIDED
    return Decision.PRESENT if score >= operating_point else Decision.ABSENT


def _finding(label: Label, said: _Said, release: Release) -> Finding:
    return Finding(
        key=label.key,
        text=label.text,
        code=label.code,
        logit=said.logit,
        score=said.score,
        probability=said.probability,
        operating_point=label.operating_point,
        decision=decide(said.score, label.operating_point, is_trained=release.is_trained),
        source_sop_instance_uids=said.sources,
        member_scores=(
            dict(zip(release.members, said.member_scores, strict=False)) if release.members else {}
        ),
    )


def _of_image(image: ImageScores, position: int, sources: tuple[str, ...]) -> _Said:
    probability = None if image.probabilities is None else image.probabilities[position]
    members = tuple([scores[position] for scores in image.member_scores])
    return _Said(image.logits[position], image.scores[position], probability, sources, members)


def _maximum(images: Sequence[ImageScores], position: int, uids: tuple[str, ...]) -> _Said:
    """All numbers of the image with the highest score: a finding need not show in every view.

    All images were looked at.
    """
    highest = max(images, key=lambda image: image.scores[position])
    return _of_image(highest, position, uids)


def _mean(images: Sequence[ImageScores], position: int, uids: tuple[str, ...]) -> _Said:
    """Means over the images, each kind of number by itself.

    The logit of a mean is not the mean of logits.
    """
    count = len(images)
    probabilities = [
        image.probabilities[position] for image in images if image.probabilities is not None
    ]
    return _Said(
        logit=sum(image.logits[position] for image in images) / count,
        score=sum(image.scores[position] for image in images) / count,
        probability=sum(probabilities) / count if probabilities else None,
        sources=uids,
        member_scores=_member_means(images, position),
    )


def _member_means(images: Sequence[ImageScores], position: int) -> tuple[float, ...]:
    """Return the scores of each member, over the images.

    None as soon as an image has none (it was read before they were kept).
    """
    by_member = zip(*(image.member_scores for image in images), strict=False)
    return tuple(sum(scores[position] for scores in each) / len(images) for each in by_member)


def _first_frontal(images: Sequence[ImageScores], position: int, _uids: tuple[str, ...]) -> _Said:
    """The first PA or AP image alone; where no view is known, the first image."""
    first = next((image for image in images if image.view in _FRONTAL), images[0])
    return _of_image(first, position, (first.sop_instance_uid,))


AGGREGATIONS: Final[
    Mapping[str, Callable[[Sequence[ImageScores], int, tuple[str, ...]], _Said]]
] = {
    "max": _maximum,
    "mean": _mean,
    "first_frontal": _first_frontal,
}
