"""Numbers of members go the way of the ensemble's.

The same images, the same aggregation, nothing of masked labels.
"""

from __future__ import annotations

import dataclasses
import math

import pytest

from hilum.assemble.findings import find, score_image
from hilum.domain import Reading, Release
from testing.phantoms.phantom import make_study
from tests.support.reports.results import instance_of, make_release, reading_of


def _release(aggregation: str) -> Release:
    release = make_release(aggregation=aggregation, members=("first", "second"), rule="mean_logit")
    return dataclasses.replace(
        release,
        labels=(*release.labels[:-1], dataclasses.replace(release.labels[-1], is_masked=True)),
    )


def _reading(release: Release, number: int, low: float, high: float) -> Reading:
    """All logits of the first member `low`, of the second `high`."""
    instance = instance_of(make_study(5, views=("PA",), rows=16, columns=16)[0], number)
    members = tuple((value,) * len(release.labels) for value in (low, high))
    return reading_of(
        instance, release, logits=((low + high) / 2,) * len(release.labels), member_logits=members
    )


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize(
    ("aggregation", "first"),
    [
        ("max", _sigmoid(1)),
        ("first_frontal", _sigmoid(-1)),
        ("mean", (_sigmoid(-1) + _sigmoid(1)) / 2),
    ],
)
def test_members_are_aggregated_as_the_ensemble_is(aggregation: str, first: float) -> None:
    release = _release(aggregation)
    images = [
        score_image(_reading(release, 1, -1, 1), release),
        score_image(_reading(release, 2, 1, 3), release),
    ]
    findings = find(images, release)
    assert len(findings) == len(release.labels) - 1
    for finding in findings:
        assert list(finding.member_scores) == ["first", "second"]
        assert finding.member_scores["first"] == pytest.approx(first)


def test_one_network_has_no_members() -> None:
    release = make_release()
    (image,) = make_study(5, views=("PA",), rows=16, columns=16)
    assert all(
        not finding.member_scores
        for finding in find(
            [score_image(reading_of(instance_of(image), release), release)], release
        )
    )


def test_a_mean_with_a_reading_from_before_they_were_kept_says_nothing_of_members() -> None:
    release = _release("mean")
    old = dataclasses.replace(_reading(release, 2, 1, 3), member_logits=None)
    images = [score_image(_reading(release, 1, -1, 1), release), score_image(old, release)]
    assert all(not finding.member_scores for finding in find(images, release))
