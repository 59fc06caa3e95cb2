"""Statistics of scores against labels: by definition, and beside published libraries.

The recorded values were computed once by scikit-learn and MLstatkit; the test names the versions.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.evaluate.statistics.areas import auroc, average_precision, curves, youden
from hilum.evaluate.statistics.bootstrap import RankedCases, percentile_interval, resamples
from hilum.evaluate.statistics.delong import delong, delong_interval, paired_difference
from hilum.evaluate.statistics.reliability import reliability

# Few values, so that many are equal, and both classes.
CASES = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=40).filter(
    lambda cases: 0 < sum(truth for truth, _ in cases) < len(cases)
)


def columns_of(cases: list[tuple[bool, int]]) -> tuple[np.ndarray, np.ndarray]:
    truth, scores = zip(*cases, strict=True)
    return np.array(truth), np.array(scores, dtype=float) / 6


def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """300 cases and two columns of scores with ties, from whole numbers alone."""
    i = np.arange(300)
    truth = (i * i * 31 + i * 17) % 97 < 30
    first = ((i * 7919) % 89) / 89 * 0.7 + truth * 0.3 * ((i % 5) / 5)
    second = ((i * 104729) % 83) / 83 * 0.6 + truth * 0.4 * ((i % 3) / 3)
    return truth, np.round(first, 2), np.round(second, 2)


@given(CASES)
def test_the_area_is_the_share_of_pairs_in_order_and_half_of_the_ties(
    cases: list[tuple[bool, int]],
) -> None:
    truth, scores = columns_of(cases)
    apart = scores[truth][:, None] - scores[~truth][None, :]
    assert auroc(truth, scores) == pytest.approx(((apart > 0) + 0.5 * (apart == 0)).mean())


@given(CASES)
def test_average_precision_is_the_mean_precision_where_a_positive_case_is_reached(
    cases: list[tuple[bool, int]],
) -> None:
    truth, scores = columns_of(cases)
    precisions = [
        (truth & (scores >= score)).sum() / (scores >= score).sum() for score in scores[truth]
    ]
    assert average_precision(truth, scores) == pytest.approx(np.mean(precisions))


@given(CASES)
def test_weights_count_a_case_as_often_as_it_was_drawn(cases: list[tuple[bool, int]]) -> None:
    truth, scores = columns_of(cases)
    times = np.arange(len(truth)) % 3
    drawn = np.repeat(np.arange(len(truth)), times)
    ranked = RankedCases(np.arange(len(truth)), truth, scores)
    area, average = ranked.areas(times[None].astype(np.float32))
    expected = auroc(truth[drawn], scores[drawn])
    if expected is None:
        assert np.isnan(area[0])
    else:
        assert area[0] == pytest.approx(expected)
        assert average[0] == pytest.approx(average_precision(truth[drawn], scores[drawn]))


def test_a_patient_is_drawn_with_all_images() -> None:
    patients = np.array([0, 0, 1, 2, 2, 2])
    weights = np.concatenate(list(resamples(patients, 500, seed=1)))
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 3] == weights[:, 5]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()


def test_a_seed_gives_the_same_resamples_again() -> None:
    patients = np.arange(50)
    first, second = (np.concatenate(list(resamples(patients, 20, seed=5))) for _ in range(2))
    assert (first == second).all()


def test_resamples_without_both_classes_are_skipped_and_counted() -> None:
    found = percentile_interval(np.array([0.5, np.nan, 0.7, np.nan]))
    assert found.skipped == 2
    assert found.low == pytest.approx(0.505)
    assert percentile_interval(np.array([np.nan])).low is None


def test_one_class_alone_has_no_area() -> None:
    scores = np.array([0.1, 0.9])
    for truth in (np.array([True, True]), np.array([False, False])):
        assert auroc(truth, scores) is None
        assert average_precision(truth, scores) is None
        assert youden(truth, scores) is None
        assert delong_interval(truth, scores) is None


def test_the_curve_begins_at_the_highest_score_and_ends_at_all() -> None:
    found = curves(np.array([True, False, True]), np.array([0.9, 0.5, 0.5]))
    assert found.thresholds.tolist() == [0.9, 0.5]
    assert found.sensitivity.tolist() == [0.5, 1.0]
    assert found.false_positive_rate.tolist() == [0.0, 1.0]


def test_scores_that_are_the_shares_have_no_calibration_error() -> None:
    truth = np.array([True, False, False, False] * 5)
    found = reliability(truth, np.full(20, 0.25))
    assert found is not None
    assert found.expected_calibration_error == pytest.approx(0)
    assert found.brier == pytest.approx(0.1875)
    assert [(item.cases, item.positive) for item in found.bins] == [(20, 0.25)]


def test_scores_outside_0_to_1_have_no_reliability() -> None:
    assert reliability(np.array([True, False]), np.array([3.0, -1.0])) is None


def test_the_same_scores_twice_differ_by_nothing() -> None:
    truth, first, _ = sample()
    found = paired_difference(truth, first, first)
    assert found is not None
    assert found.difference == 0
    assert found.p is None


@given(CASES)
def test_delong_is_the_variance_of_the_pairwise_definition(cases: list[tuple[bool, int]]) -> None:
    truth, scores = columns_of(cases)
    found = delong(truth, [scores])
    if found is None:
        assert min(truth.sum(), (~truth).sum()) < 2
        return
    apart = scores[truth][:, None] - scores[~truth][None, :]
    kernel = (apart > 0) + 0.5 * (apart == 0)
    expected = kernel.mean(axis=1).var(ddof=1) / kernel.shape[0]
    expected += kernel.mean(axis=0).var(ddof=1) / kernel.shape[1]
    assert found.covariance[0, 0] == pytest.approx(expected, abs=1e-12)


def test_areas_are_those_of_scikit_learn() -> None:
    """scikit-learn 1.9.0: roc_auc_score, average_precision_score, brier_score_loss, roc_curve."""
    truth, first, second = sample()
    assert auroc(truth, first) == pytest.approx(0.6812135233187865, abs=1e-12)
    assert auroc(truth, second) == pytest.approx(0.6204847783795151, abs=1e-12)
    assert average_precision(truth, first) == pytest.approx(0.5691512944945163, abs=1e-12)
    assert average_precision(truth, second) == pytest.approx(0.4886872938625515, abs=1e-12)
    assert youden(truth, first) == 0.63
    assert youden(truth, second) == 0.2


def test_reliability_is_that_of_scikit_learn() -> None:
    """scikit-learn 1.9.0: brier_score_loss, calibration_curve with 10 bins."""
    truth, first, _ = sample()
    found = reliability(truth, first)
    assert found is not None
    assert found.brier == pytest.approx(0.20543333333333333, abs=1e-12)
    assert [item.positive for item in found.bins[:4]] == pytest.approx(
        [0.0625, 0.14705882352941177, 0.34, 0.3023255813953488]
    )
    assert [item.score for item in found.bins[:4]] == pytest.approx(
        [0.048437500000000015, 0.1608823529411765, 0.2584, 0.35395348837209306]
    )


def test_intervals_and_the_paired_test_are_those_of_mlstatkit() -> None:
    """MLstatkit 0.1.91, Delong_test; confidenceinterval 1.0.5 has the same intervals."""
    truth, first, second = sample()
    assert delong_interval(truth, first) == pytest.approx((0.6144306714732218, 0.7479963751643511))
    assert delong_interval(truth, second) == pytest.approx((0.5520829373862143, 0.6888866193728161))
    found = paired_difference(truth, first, second)
    assert found is not None
    assert found.p == pytest.approx(0.20531911027472494)
    error = (found.high - found.low) / 2 / 1.959963984540054
    assert error**2 == pytest.approx(0.0022990553879585476)
