from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom.valuerep import format_number_as_ds

from hilum.domain import Code, Decision, Finding
from hilum.report.numbers import certainty_of, percent, score_in_words, score_of


def finding(score: float, point: float | None) -> Finding:
    return Finding(
        "key", "Text", Code("1", "99HILUM", "Text"), 0.0, score, None, point, Decision.UNDECIDED, ()
    )


@pytest.mark.parametrize(
    ("score", "point", "written", "in_words"),
    [
        (0.609973051, 0.5, 0.6099731, "0.610"),
        (0.609973051, None, 0.6099731, "0.610"),
        (0.49999975, 0.5, 0.4999998, "0.4999998"),
        (0.012361, 0.01235, 0.012361, "0.012361"),
        (math.nextafter(0.5, 0), 0.5, 0.499999999999, "0.499999999999"),
        (0.1 + 0.2, 0.1 + 0.2, 0.300000000001, "0.300000000001"),
        (5e-8, 3e-8, 5e-8, "5e-08"),
    ],
)
def test_a_score_has_the_digits_that_keep_it_on_its_side(
    score: float, point: float | None, written: float, in_words: str
) -> None:
    assert (score_of(finding(score, point)), score_in_words(finding(score, point))) == (
        written,
        in_words,
    )


@given(st.floats(-40, 40) | st.floats(0, 1), st.integers(-3, 3))
def test_no_score_crosses_its_operating_point_in_sixteen_characters(
    point: float, steps: int
) -> None:
    score = point
    for _ in range(abs(steps)):
        score = math.nextafter(score, math.copysign(math.inf, steps))
    text = format_number_as_ds(score_of(finding(score, point)))
    assert len(text) <= 16
    assert (float(text) >= point) == (score >= point)


@pytest.mark.parametrize(
    ("probability", "number", "words"),
    [
        (0.0, 0.0, "0%"),
        (1e-20, 1e-18, "below 1%"),
        (0.0722391, 7.2239, "7%"),
        (0.9955, 99.55, "above 99%"),
        (0.99999999, 99.999999, "above 99%"),
        (math.nextafter(1, 0), 99.99999999999, "above 99%"),
        (1.0, 100.0, "100%"),
    ],
)
def test_nothing_uncertain_is_certain(probability: float, number: float, words: str) -> None:
    assert (certainty_of(probability), percent(probability)) == (number, words)
