"""Statistics of two releases beside those of established libraries and of textbooks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.assemble.agreement import Said, kappa
from hilum.assemble.pair_statistics import PairStatistics, kappa_of, mcnemar

WORDS = ("present", "absent")
scores = st.floats(0, 1)
said = st.tuples(scores, scores, st.sampled_from(WORDS), st.sampled_from(WORDS))


def summary_of(pairs: list[Said]):  # type: ignore[no-untyped-def]
    statistics = PairStatistics("opacity")
    for pair in pairs:
        statistics.add(pair)
    return statistics.summary()


@given(st.lists(said, min_size=2, max_size=60))
def test_differences_and_limits_are_those_of_numpy(pairs: list[Said]) -> None:
    found = summary_of(pairs)
    differences = np.array([second - first for first, second, *_ in pairs])
    deviation = differences.std(ddof=1)
    assert found.difference == pytest.approx(differences.mean(), abs=1e-12)
    assert found.limits == pytest.approx(
        (
            differences.mean() - 1.959963984540054 * deviation,
            differences.mean() + 1.959963984540054 * deviation,
        ),
        abs=1e-9,
    )


@given(st.lists(said, min_size=1, max_size=60))
def test_kappa_is_that_of_rollouts(pairs: list[Said]) -> None:
    expected = kappa((pair[2], pair[3]) for pair in pairs)
    found = summary_of(pairs).kappa.value
    assert (found is None) == (expected is None)
    assert found is None or found == pytest.approx(expected)


@given(st.lists(said, min_size=1, max_size=60))
def test_each_study_is_in_one_bin_of_each_plot(pairs: list[Said]) -> None:
    found = summary_of(pairs)
    assert sum(found.bins.values()) == sum(found.spread.values()) == len(pairs)


def test_the_correlation_is_that_of_numpy() -> None:
    generator = np.random.default_rng(1)
    first = generator.random(500)
    second = np.clip(first + generator.normal(0, 0.1, 500), 0, 1)
    pairs = [(one, two, "present", "absent") for one, two in zip(first, second, strict=True)]
    assert summary_of(pairs).correlation == pytest.approx(np.corrcoef(first, second)[0, 1])


def test_kappa_and_its_interval_are_those_of_a_textbook() -> None:
    # Fleiss, Statistical Methods for Rates and Proportions, table 18.1 reduced to two classes
    table = Counter(
        {("present", "present"): 20, ("present", "absent"): 5, ("absent", "present"): 10}
        | {("absent", "absent"): 15}
    )
    found = kappa_of(table)
    assert found.value == pytest.approx(0.4)
    assert found.low == pytest.approx(0.1501, abs=2e-3)
    assert found.high == pytest.approx(0.6499, abs=2e-3)


@pytest.mark.parametrize(
    ("first_only", "second_only", "expected"),
    [(0, 0, 1.0), (5, 5, 1.0), (10, 0, 2 / 1024), (1, 9, 22 / 1024), (9, 1, 22 / 1024)],
)
def test_mcnemar_is_the_two_sided_binomial(
    first_only: int, second_only: int, expected: float
) -> None:
    assert mcnemar(first_only, second_only) == pytest.approx(expected)


def test_mcnemar_of_many_pairs_is_near_the_exact_one() -> None:
    assert mcnemar(1040, 961) == pytest.approx(mcnemar(1039, 961), rel=0.1)
