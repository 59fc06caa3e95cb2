"""The first rule that matches decides, and rules that are never reached are found."""

from __future__ import annotations

from typing import Any

import pytest

from hilum.rules.shadows import shadowed
from hilum.settings import Settings, restore
from hilum.settings.rules.former import advice, as_toml
from tests.support.rules.studies import facts, rule_of, settings_with

DX = {"name": "dx", "when": {"Modality": "DX"}, "then": {"priority": "urgent"}}
CHEST = {"name": "chest", "when": {"StudyDescription": "*chest*"}}


@pytest.mark.parametrize(
    ("rules", "expected"), [((DX, CHEST), "dx"), ((CHEST, DX), "chest"), ((), "default")]
)
def test_the_first_rule_that_matches_decides(rules: tuple[Any, ...], expected: str) -> None:
    settings = settings_with(*rules)

    assert rule_of(settings, facts(Modality="DX", StudyDescription="chest")) == expected


def test_rules_of_other_titles_are_passed_over() -> None:
    settings = settings_with(
        {"name": "er", "when": {"called": "ER"}},
        {"name": "er dx", "when": {"called": "HILUM", "Modality": "DX"}},
        {"name": "cr1", "when": {"calling": "CR1"}},
        DX,
    )

    assert rule_of(settings, facts(called="ER", Modality="DX")) == "er"
    assert rule_of(settings, facts(Modality="DX")) == "er dx"
    assert rule_of(settings, facts(Modality="CT")) == "cr1"
    assert rule_of(settings, facts(calling="CR2", called="X", Modality="DX")) == "dx"


def test_what_a_rule_leaves_out_is_as_for_all() -> None:
    settings = settings_with(DX, studies={"quiet_seconds": 4.0})
    assert settings.rule_table is not None
    handling = settings.handling(settings.rule_table.decide(facts(Modality="DX")))

    assert handling.priority == "urgent"
    assert handling.releases == ("chest@1",)
    assert handling.destinations == ("pacs", "research")
    assert (handling.quiet_seconds, handling.maximum_wait_seconds) == (4.0, 120.0)


def test_no_destination_is_one_that_a_rule_may_say() -> None:
    settings = settings_with(
        {"name": "kept", "when": {"Modality": "DX"}, "then": {"destinations": []}}
    )
    assert settings.rule_table is not None

    assert settings.handling(settings.rule_table.decide(facts(Modality="DX"))).destinations == ()


def test_a_release_that_has_left_the_settings_reads_no_late_image() -> None:
    before = settings_with({**DX, "then": {"releases": ["gone@1"]}})
    assert before.rule_table is not None
    decision = before.rule_table.decide(facts(Modality="DX"))

    assert before.handling(decision).releases == ("gone@1",)
    assert settings_with(DX).handling(decision).releases == ("chest@1",)


def test_another_rule_gives_another_digest() -> None:
    one, other = (settings_with(*rules) for rules in ((DX,), (DX, CHEST)))
    assert one.rule_table is not None
    assert other.rule_table is not None

    assert one.rule_table.rows[0].decision.digest != other.rule_table.rows[0].decision.digest
    assert restore(one.dump()).rule_table.rows[0].decision == one.rule_table.rows[0].decision  # type: ignore[union-attr] # there are rules


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ({"Modality": ["CR", "DX"]}, {"Modality": "dx"}, True),
        ({"Modality": "DX"}, {"Modality": ["CR", "DX"]}, False),
        ({"StudyDescription": "*chest*"}, {"StudyDescription": "*Chest PA*"}, True),
        ({"StudyDescription": "*chest*"}, {"StudyDescription": "*pa*"}, False),
        ({"Modality": "DX"}, {"Modality": "DX", "Rows": 5}, True),
        ({"Modality": "DX", "Rows": 5}, {"Modality": "DX"}, False),
        ({"Rows": {"min": 5}}, {"Rows": {"min": 6, "max": 9}}, True),
        ({"Rows": {"min": 5, "max": 8}}, {"Rows": {"min": 6}}, False),
        ({"Rows": {"min": 5}}, {"Rows": 7}, True),
        ({"calling": "CR*"}, {"calling": ["CR1", "CR2"], "Modality": "CR"}, True),
        ({"calling": "cr*"}, {"calling": "CR1"}, False),
        ({"Modality": {"absent": True}}, {"Modality": {"absent": True}}, True),
        ({"Modality": {"absent": False}}, {"Modality": {"absent": True}}, False),
        ({"not": {"Modality": "CT"}}, {"not": {"Modality": "CT"}, "Rows": 1}, True),
        ({"campaign": True}, {"campaign": False}, False),
    ],
)
def test_a_rule_is_shadowed_by_an_earlier_one_that_matches_all_of_it(
    earlier: Any, later: Any, expected: bool
) -> None:
    found = shadowed([("first", earlier), ("second", later), ("default", {})])

    assert found == ({"second": "first"} if expected else {})


def test_routes_and_senders_are_written_out_as_rules_that_say_the_same() -> None:
    former: dict[str, Any] = {
        "receive": {"ae_titles": ["HILUM", "ER"]},
        "destinations": {"pacs": {}},
        "routes": {"ER": {"priority": "urgent", "destinations": ["pacs"]}},
        "senders": {
            "CR*": {"quiet_seconds": 0.0},
            "PACS": {"maximum_associations": 3},
        },
    }
    old = Settings.model_validate(former)
    import tomllib

    written = tomllib.loads(as_toml(old.rules_in_use))["rules"]
    new = Settings.model_validate({**former, "routes": {}, "senders": {}, "rules": written})

    assert [rule["name"] for rule in written] == [
        "from CR_ to ER",
        "from CR_",
        "to ER",
        "default",
    ]
    assert written[0]["when"] == {"calling": "CR\\*", "called": "ER"}
    assert new.rules_in_use == old.rules_in_use
    assert as_toml(old.rules_in_use) in advice(old.rules_in_use)
    assert rule_of(old, facts(calling="CR1", called="ER")) == "to ER", (
        "a star of a title is no pattern"
    )


def test_settings_of_senders_that_say_nothing_of_studies_are_no_rules() -> None:
    settings = Settings.model_validate({"senders": {"PACS": {"maximum_associations": 3}}})

    assert settings.rules_in_use == ()
    assert settings.rule_table is None
