"""Scores and probabilities: known values, bounds, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.domain import Code, Label
from hilum.scores import activate, probabilities_of, rescale, scores_of, sigmoid, softmax
from tests.support.reports.results import make_release

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
logits = st.lists(finite, min_size=1, max_size=20)
shares = st.floats(0, 1)
thresholds = st.floats(0.001, 0.999)


def labelled(*keys: str, **changes):
    """A release with one label a key; `changes` are fields of Release."""
    labels = [
        Label(key, key, Code(key.upper(), "99HILUM", key), "C", 0.5, key.startswith("masked"))
        for key in keys
    ]
    return make_release(**{"labels": tuple(labels), **changes})


def numbered(count: int, **changes):
    return labelled(*(f"label_{n}" for n in range(count)), **changes)


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
    found = softmax(values)
    assert sum(found) == pytest.approx(1.0)
    assert all(0.0 <= share <= 1.0 for share in found)
    assert found[values.index(max(values))] == max(found)


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


def op_norm(output: float, threshold: float) -> float:
    """torchxrayvision 1.5.7, models.op_norm, for one output whose threshold is a number."""
    if output < threshold:
        return output / (threshold * 2)
    return 1.0 - ((1.0 - output) / ((1 - threshold) * 2))


@given(shares, thresholds)
def test_rescaling_is_that_of_torchxrayvision(value, at):
    assert rescale(value, at) == pytest.approx(op_norm(value, at))


@given(shares, shares, thresholds)
def test_rescaling_keeps_order_and_bounds_and_moves_the_threshold_to_a_half(one, other, at):
    low, high = sorted((one, other))
    assert 0.0 <= rescale(low, at) <= rescale(high, at) <= 1.0
    assert rescale(at, at) == pytest.approx(0.5)
    assert rescale(one, None) == one


def test_a_release_rescales_each_label_by_its_own_threshold():
    labels = [
        Label(key, key, Code(key, "99HILUM", key), "C", 0.5, rescaled_at=at)
        for key, at in (("A", 0.02), ("B", None))
    ]
    release = make_release(labels=tuple(labels))
    rare, common = scores_of([math.log(0.02 / 0.98), 0.0], release)
    assert rare == pytest.approx(0.5)
    assert common == 0.5


def test_without_calibration_there_is_no_probability():
    assert probabilities_of([1.0], numbered(1)) is None


def test_untrained_weights_have_no_probability_whatever_the_calibration_says():
    assert (
        probabilities_of(
            [1.0],
            numbered(
                1, is_trained=False, calibration={"method": "temperature", "temperature": 1.0}
            ),
        )
        is None
    )


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=6), st.floats(0.05, 20))
def test_temperature_divides_the_logit_and_keeps_the_ranking(values, temperature):
    found = probabilities_of(
        values,
        numbered(len(values), calibration={"method": "temperature", "temperature": temperature}),
    )
    assert found == pytest.approx([sigmoid(value / temperature) for value in values])
    assert max(range(len(values)), key=found.__getitem__) in [
        n for n, item in enumerate(found) if item == max(found)
    ]


def test_temperature_of_a_softmax_release_still_sums_to_one():
    release = numbered(
        3, activation="softmax", calibration={"method": "temperature", "temperature": 2.0}
    )
    found = probabilities_of([2.0, 1.0, 0.0], release)
    assert sum(found) == pytest.approx(1.0)
    assert found == pytest.approx(softmax([1.0, 0.5, 0.0]))


def test_platt_for_all_labels_and_for_each():
    both = {"method": "platt", "a": 2.0, "b": -1.0, "labels": {"second": {"a": 1.0, "b": 0.0}}}
    assert probabilities_of(
        [1.0, 1.0], labelled("first", "second", calibration=both)
    ) == pytest.approx((sigmoid(1.0), sigmoid(1.0)))
    only = {"method": "platt", "labels": {"first": {"a": 1.0, "b": 0.5}}}
    with pytest.raises(ValueError, match="second"):
        probabilities_of([1.0, 1.0], labelled("first", "second", calibration=only))


POINTS = [[0.1, 0.0], [0.3, 0.2], [0.7, 0.2], [0.9, 1.0]]


def isotonic(*keys: str, **changes):
    return labelled(
        *keys,
        calibration={"method": "isotonic", "points": {"first": POINTS}},
        activation="none",
        **changes,
    )


@pytest.mark.parametrize(
    ("score", "probability"),
    [
        (-5.0, 0.0),
        (0.1, 0.0),
        (0.2, 0.1),
        (0.3, 0.2),
        (0.5, 0.2),
        (0.8, 0.6),
        (0.9, 1.0),
        (7.0, 1.0),
    ],
)
def test_isotonic_goes_straight_between_points_and_stays_level_beyond(score, probability):
    assert probabilities_of([score], isotonic("first")) == pytest.approx((probability,))


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_isotonic_never_falls(one, other):
    low, high = sorted((one, other))
    (below,), (above,) = (probabilities_of([value], isotonic("first")) for value in (low, high))
    assert 0.0 <= below <= above <= 1.0


def test_isotonic_is_measured_on_the_score_after_rescaling():
    label = Label("first", "First", Code("FIRST", "99HILUM", "First"), "C", 0.5, rescaled_at=0.02)
    release = make_release(
        labels=(label,),
        calibration={
            "method": "isotonic",
            "points": {"first": [[0.0, 0.0], [0.5, 0.04], [1.0, 1.0]]},
        },
    )
    assert probabilities_of([math.log(0.02 / 0.98)], release) == pytest.approx((0.04,))


def test_a_masked_label_needs_no_calibration_and_has_no_probability():
    first, masked = probabilities_of([0.3, 0.3], isotonic("first", "masked_one"))
    assert first == pytest.approx(0.2)
    assert math.isnan(masked)
    with pytest.raises(ValueError, match="no points for second"):
        probabilities_of([0.3, 0.3], isotonic("first", "second"))


@pytest.mark.parametrize(
    ("calibration", "activation", "message"),
    [
        ({"method": "beta"}, "sigmoid", "temperature, platt, isotonic"),
        ({}, "sigmoid", "unknown calibration method None"),
        ({"method": "temperature", "temperature": 0}, "sigmoid", "above 0"),
        ({"method": "temperature", "temperature": float("nan")}, "sigmoid", "above 0"),
        ({"method": "temperature", "temperature": 1.0}, "none", "needs the activation"),
    ],
)
def test_a_calibration_that_makes_no_sense_is_refused(calibration, activation, message):
    with pytest.raises(ValueError, match=message):
        probabilities_of([1.0], numbered(1, activation=activation, calibration=calibration))
