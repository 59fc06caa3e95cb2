"""The comparison of two releases: its list of discrepant studies, its JSON and its page."""

from __future__ import annotations

import dataclasses
import json

import pytest

from hilum.assemble.pair_statistics import BINS
from hilum.domain import Decision, Result
from hilum.services.campaigns.comparison import Comparison, as_json, comparison_of
from hilum.services.campaigns.comparison_page import page
from hilum.store.queries.pairs import Pair
from testing.phantoms import phantom
from tests.support.reports.results import make_release, report_of

PRESENT = Decision.PRESENT
ABSENT = Decision.ABSENT


def said(release: str, score: float, decision: Decision) -> Result:
    """A result with one finding."""
    made = report_of(phantom.make_study(seed=1, rows=64, columns=64)[:1], make_release()).result
    finding = dataclasses.replace(made.findings[0], score=score, decision=decision)
    return dataclasses.replace(made, release=release, findings=(finding,), is_trained=True)


def pair(study: str, first: tuple[float, Decision], second: tuple[float, Decision]) -> Pair:
    return Pair(study, said("chest@1", *first), said("chest@2", *second))


@pytest.fixture
def found() -> Comparison:
    return comparison_of(
        "chest@1",
        "chest@2",
        [
            pair("1.1", (0.9, PRESENT), (0.8, PRESENT)),
            pair("1.2", (0.4, ABSENT), (0.6, PRESENT)),
            pair("1.3", (0.1, ABSENT), (0.4, ABSENT)),
            pair("1.4", (0.2, ABSENT), (0.2, ABSENT)),
        ],
    )


def test_flips_stand_before_larger_differences_without_a_flip(found: Comparison) -> None:
    assert [item.study_instance_uid for item in found.discrepancies] == ["1.2", "1.3", "1.1"]


def test_only_so_many_discrepancies_are_kept_and_the_gravest() -> None:
    many = (
        pair(f"1.{number}", (0.0, ABSENT), (number / 1000, ABSENT)) for number in range(1, 1000)
    )
    found = comparison_of("chest@1", "chest@2", many)
    assert len(found.discrepancies) == 500
    assert found.discrepancies[0].study_instance_uid == "1.999"


def test_json_holds_every_study_in_each_plot(found: Comparison) -> None:
    content = json.loads(json.dumps(as_json(found), allow_nan=False))
    (finding,) = content["findings"]
    assert content["studies"] == 4
    assert sum(count for *_, count in finding["scatter"]["counts"]) == 4
    assert finding["scatter"]["bins"] == BINS
    assert sum(cell["studies"] for cell in finding["table"]) == finding["decided"] == 4


def test_the_page_loads_nothing_and_escapes_names(found: Comparison) -> None:
    text = page(dataclasses.replace(found, first="<b>&"), "Campaign old", "2026-11-26 12:00 UTC")
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;" in text
    assert "http" not in text
    assert "1.2" in text


def test_a_page_without_a_study_says_what_to_do() -> None:
    text = page(comparison_of("chest@1", "chest@2", []), "Campaign old", "now")
    assert "hilum campaign run" in text


def test_untrained_weights_are_named(found: Comparison) -> None:
    text = page(dataclasses.replace(found, untrained=("chest@2",)), "Campaign old", "now")
    assert "chest@2 has untrained weights" in text
