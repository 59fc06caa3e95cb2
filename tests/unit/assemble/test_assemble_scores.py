from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.assemble.findings import ImageScores, decide, find, score_image
from hilum.domain import Decision
from hilum.scores import softmax
from tests.support.reports.results import LABELS, LOGITS, instance_of, make_release, reading_of


@given(st.floats(0, 1), st.floats(0, 1))
def test_present_exactly_when_the_score_reaches_the_operating_point(score, point):
    assert (decide(score, point, is_trained=True) is Decision.PRESENT) == (score >= point)


@given(st.floats(0, 1), st.none() | st.floats(0, 1))
def test_untrained_weights_never_decide(score, point):
    assert decide(score, point, is_trained=False) is Decision.UNDECIDED
    assert decide(score, None, is_trained=True) is Decision.UNDECIDED


def image(
    uid: str, view: str | None, *scores: float, probabilities: tuple[float, ...] | None = None
) -> ImageScores:
    return ImageScores(uid, view, tuple(10 * score for score in scores), scores, probabilities)


def two_labels(**changes):
    return make_release(labels=LABELS[:2], **changes)


def test_max_takes_all_numbers_from_the_image_that_decides_and_names_all():
    images = [
        image("1", "PA", 0.2, 0.9, probabilities=(0.1, 0.8)),
        image("2", "LATERAL", 0.6, 0.1, probabilities=(0.5, 0.05)),
    ]
    first, second = find(images, two_labels(aggregation="max"))
    assert (first.score, first.logit, first.probability) == (0.6, 6.0, 0.5)
    assert (second.score, second.logit, second.probability) == (0.9, 9.0, 0.8)
    assert first.source_sop_instance_uids == second.source_sop_instance_uids == ("1", "2")


def test_mean_is_the_mean_of_each_kind_of_number():
    images = [
        image("1", "PA", 0.2, 0.9, probabilities=(0.1, 0.8)),
        image("2", "LATERAL", 0.6, 0.1, probabilities=(0.5, 0.2)),
    ]
    first, _ = find(images, two_labels(aggregation="mean"))
    assert (first.score, first.logit, first.probability) == (
        pytest.approx(0.4),
        pytest.approx(4.0),
        pytest.approx(0.3),
    )


@pytest.mark.parametrize(
    ("views", "chosen"),
    [
        (("LATERAL", "PA"), "1"),
        (("LATERAL", "AP", "PA"), "1"),
        (("UNKNOWN", "LATERAL"), "0"),
        ((None,), "0"),
    ],
)
def test_first_frontal_rests_on_one_image(views, chosen):
    images = [image(str(n), view, 0.1 * n, 0.5) for n, view in enumerate(views)]
    first, _ = find(images, two_labels(aggregation="first_frontal"))
    assert first.source_sop_instance_uids == (chosen,)
    assert first.score == pytest.approx(0.1 * int(chosen))


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.sampled_from(["max", "mean", "first_frontal"]),
)
def test_every_aggregation_stays_within_the_images(scores, aggregation):
    images = [image(str(n), "PA", score, 0.5) for n, score in enumerate(scores)]
    first, _ = find(images, two_labels(aggregation=aggregation))
    assert min(scores) - 1e-12 <= first.score <= max(scores) + 1e-12
    assert set(first.source_sop_instance_uids) <= {item.sop_instance_uid for item in images}


def test_an_unknown_aggregation_names_the_known_ones():
    with pytest.raises(ValueError, match="max, mean, first_frontal"):
        find([image("1", "PA", 0.1, 0.2)], two_labels(aggregation="median"))


def test_masked_labels_are_left_out_but_count_in_a_softmax(synthetic_instance):
    release = make_release(activation="softmax")
    scores = score_image(reading_of(synthetic_instance, release), release)
    found = find([scores], release)
    assert [finding.key for finding in found] == [label.key for label in LABELS[:-1]]
    assert sum(finding.score for finding in found) == pytest.approx(1 - softmax(LOGITS)[-1])


def test_untrained_weights_have_no_probability_whatever_the_manifest_says(synthetic_instance):
    release = make_release(
        is_trained=False, calibration={"method": "temperature", "temperature": 2.0}
    )
    scores = score_image(reading_of(synthetic_instance, release), release)
    assert scores.probabilities is None


def test_logits_of_another_release_are_refused(synthetic_instance):
    release = make_release()
    with pytest.raises(ValueError, match=r"6 labels.*2 logits"):
        score_image(reading_of(synthetic_instance, release, logits=(0.1, 0.2)), release)


@pytest.fixture(scope="module")
def synthetic_instance():
    from testing.phantoms.phantom import make_instance

    return instance_of(make_instance(rows=16, columns=16))


def test_operating_points_are_on_the_scale_of_the_score_that_is_shown(synthetic_instance):
    """A rare finding: activation 0.03 is above its threshold 0.02, and is shown as a score just above one half."""
    label = dataclasses.replace(LABELS[0], operating_point=0.5, rescaled_at=0.02)
    release = make_release(labels=(label,))
    reading = reading_of(synthetic_instance, release, logits=(math.log(0.03 / 0.97),))
    (finding,) = find([score_image(reading, release)], release)
    assert finding.score == pytest.approx(1 - 0.97 / (2 * 0.98))
    assert finding.decision is Decision.PRESENT
