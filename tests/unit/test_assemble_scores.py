from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.assemble.findings import ImageScores, decide, find, score_image
from hilum.assemble.scores import activate, calibrate, sigmoid, softmax
from hilum.domain import Decision
from tests.support.results import LABELS, LOGITS, instance_of, make_release, reading_of

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
logits = st.lists(finite, min_size=1, max_size=20)
KEYS = [label.key for label in LABELS]


@given(finite)
def test_sigmoid_is_bounded_and_symmetric(value):
    assert 0.0 <= sigmoid(value) <= 1.0
    assert sigmoid(value) + sigmoid(-value) == pytest.approx(1.0)


@given(finite, finite)
def test_sigmoid_keeps_the_order(one, other):
    low, high = sorted((one, other))
    assert sigmoid(low) <= sigmoid(high)


@given(logits)
def test_softmax_gives_shares_of_one(values):
    shares = softmax(values)
    assert sum(shares) == pytest.approx(1.0)
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert shares[values.index(max(values))] == max(shares)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.floats(-100, 100))
def test_softmax_does_not_know_a_common_offset(values, offset):
    assert softmax([value + offset for value in values]) == pytest.approx(softmax(values), abs=1e-9)


def test_known_values():
    assert sigmoid(0.0) == 0.5
    assert sigmoid(math.log(3)) == pytest.approx(0.75)
    assert softmax([0.0, math.log(3)]) == pytest.approx((0.25, 0.75))
    assert activate([-3.5, 2.0], "none") == (-3.5, 2.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_logit_that_is_no_number_is_never_absent(bad):
    with pytest.raises(ValueError, match="not a number"):
        activate([0.0, bad], "sigmoid")


def test_an_unknown_activation_names_the_known_ones():
    with pytest.raises(ValueError, match="sigmoid, softmax, none"):
        activate([0.0], "relu")


def test_without_calibration_there_is_no_probability():
    assert calibrate([1.0], "sigmoid", ["a"], None) is None


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=6), st.floats(0.05, 20))
def test_temperature_divides_the_logit_and_keeps_the_ranking(values, temperature):
    keys = [str(n) for n in range(len(values))]
    found = calibrate(values, "sigmoid", keys, {"method": "temperature", "temperature": temperature})
    assert found == pytest.approx([sigmoid(value / temperature) for value in values])
    assert max(range(len(values)), key=found.__getitem__) in [n for n, item in enumerate(found) if item == max(found)]


def test_temperature_of_a_softmax_release_still_sums_to_one():
    found = calibrate([2.0, 1.0, 0.0], "softmax", ["a", "b", "c"], {"method": "temperature", "temperature": 2.0})
    assert sum(found) == pytest.approx(1.0)
    assert found == pytest.approx(softmax([1.0, 0.5, 0.0]))


def test_platt_for_all_labels_and_for_each():
    both = {"method": "platt", "a": 2.0, "b": -1.0, "labels": {"second": {"a": 1.0, "b": 0.0}}}
    found = calibrate([1.0, 1.0], "sigmoid", ["first", "second"], both)
    assert found == pytest.approx((sigmoid(1.0), sigmoid(1.0)))
    only = {"method": "platt", "labels": {"first": {"a": 1.0, "b": 0.5}}}
    with pytest.raises(ValueError, match="second"):
        calibrate([1.0, 1.0], "sigmoid", ["first", "second"], only)


@pytest.mark.parametrize(
    ("calibration", "activation", "message"),
    [
        ({"method": "isotonic"}, "sigmoid", "temperature, platt"),
        ({}, "sigmoid", "unknown calibration method None"),
        ({"method": "temperature", "temperature": 0}, "sigmoid", "above 0"),
        ({"method": "temperature", "temperature": float("nan")}, "sigmoid", "above 0"),
        ({"method": "temperature", "temperature": 1.0}, "none", "needs the activation"),
    ],
)
def test_a_calibration_that_makes_no_sense_is_refused(calibration, activation, message):
    with pytest.raises(ValueError, match=message):
        calibrate([1.0], activation, ["a"], calibration)


@given(st.floats(0, 1), st.floats(0, 1))
def test_present_exactly_when_the_score_reaches_the_operating_point(score, point):
    assert (decide(score, point, is_trained=True) is Decision.PRESENT) == (score >= point)


@given(st.floats(0, 1), st.none() | st.floats(0, 1))
def test_untrained_weights_never_decide(score, point):
    assert decide(score, point, is_trained=False) is Decision.UNDECIDED
    assert decide(score, None, is_trained=True) is Decision.UNDECIDED


def image(uid: str, view: str | None, *scores: float, probabilities: tuple[float, ...] | None = None) -> ImageScores:
    return ImageScores(uid, view, tuple(10 * score for score in scores), scores, probabilities)


def two_labels(**changes):
    return make_release(labels=LABELS[:2], **changes)


def test_max_takes_all_numbers_from_the_image_that_decides_and_names_all():
    images = [image("1", "PA", 0.2, 0.9, probabilities=(0.1, 0.8)), image("2", "LATERAL", 0.6, 0.1, probabilities=(0.5, 0.05))]
    first, second = find(images, two_labels(aggregation="max"))
    assert (first.score, first.logit, first.probability) == (0.6, 6.0, 0.5)
    assert (second.score, second.logit, second.probability) == (0.9, 9.0, 0.8)
    assert first.source_sop_instance_uids == second.source_sop_instance_uids == ("1", "2")


def test_mean_is_the_mean_of_each_kind_of_number():
    images = [image("1", "PA", 0.2, 0.9, probabilities=(0.1, 0.8)), image("2", "LATERAL", 0.6, 0.1, probabilities=(0.5, 0.2))]
    first, _ = find(images, two_labels(aggregation="mean"))
    assert (first.score, first.logit, first.probability) == (pytest.approx(0.4), pytest.approx(4.0), pytest.approx(0.3))


@pytest.mark.parametrize(
    ("views", "chosen"),
    [(("LATERAL", "PA"), "1"), (("LATERAL", "AP", "PA"), "1"), (("UNKNOWN", "LATERAL"), "0"), ((None,), "0")],
)
def test_first_frontal_rests_on_one_image(views, chosen):
    images = [image(str(n), view, 0.1 * n, 0.5) for n, view in enumerate(views)]
    first, _ = find(images, two_labels(aggregation="first_frontal"))
    assert first.source_sop_instance_uids == (chosen,)
    assert first.score == pytest.approx(0.1 * int(chosen))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.sampled_from(["max", "mean", "first_frontal"]))
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
    assert [finding.key for finding in found] == KEYS[:-1]
    assert sum(finding.score for finding in found) == pytest.approx(1 - softmax(LOGITS)[-1])


def test_untrained_weights_have_no_probability_whatever_the_manifest_says(synthetic_instance):
    release = make_release(is_trained=False, calibration={"method": "temperature", "temperature": 2.0})
    scores = score_image(reading_of(synthetic_instance, release), release)
    assert scores.probabilities is None


def test_logits_of_another_release_are_refused(synthetic_instance):
    release = make_release()
    with pytest.raises(ValueError, match=r"6 labels.*2 logits"):
        score_image(reading_of(synthetic_instance, release, logits=(0.1, 0.2)), release)


@pytest.fixture(scope="module")
def synthetic_instance():
    from load_tests.phantom import make_instance

    return instance_of(make_instance(rows=16, columns=16))
