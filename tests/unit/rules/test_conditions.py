"""Conditions of rules: what matches, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hilum.rules import StudyFacts, WrongCondition, parse_conditions
from hilum.services.rules.study_facts import header_of
from tests.support.rules.studies import BIG_ENDIAN, IMPLICIT, facts, facts_in


def matches(when: Mapping[str, Any], found: StudyFacts) -> bool:
    return all(item.holds(found) for item in parse_conditions(when))


@pytest.mark.parametrize(
    ("when", "attributes", "expected"),
    [
        ({"Modality": "DX"}, {"Modality": "DX"}, True),
        ({"Modality": ["CR", "DX"]}, {"Modality": "DX"}, True),
        ({"Modality": ["CR", "DX"]}, {"Modality": "CT"}, False),
        ({"Modality": "dx"}, {"Modality": "DX"}, True),
        ({"StudyDescription": "*chest*"}, {"StudyDescription": "XR Chest PA"}, True),
        ({"StudyDescription": "chest"}, {"StudyDescription": "XR Chest PA"}, False),
        ({"StudyDescription": "chest ?a"}, {"StudyDescription": "CHEST PA  "}, True),
        ({"StudyDescription": "a[b]*"}, {"StudyDescription": "A[B]C"}, True),
        ({"StudyDescription": "a[b]*"}, {"StudyDescription": "abc"}, False),
        ({"StudyDescription": r"\*"}, {"StudyDescription": "*"}, True),
        ({"StudyDescription": r"\*"}, {"StudyDescription": "x"}, False),
        ({"Rows": {"min": 512}}, {"Rows": 512}, True),
        ({"Rows": {"min": 512, "max": 1000}}, {"Rows": 1001}, False),
        ({"Rows": 512}, {"Rows": 512}, True),
        ({"KVP": {"max": 70.5}}, {"KVP": "70.5"}, True),
        ({"SeriesNumber": [1, 2]}, {"SeriesNumber": "2"}, True),
        ({"Modality": "DX", "Rows": {"min": 9}}, {"Modality": "DX", "Rows": 8}, False),
    ],
)
def test_a_condition_on_an_attribute(
    when: Mapping[str, Any], attributes: Mapping[str, Any], expected: bool
) -> None:
    assert matches(when, facts(**attributes)) is expected


def test_a_missing_attribute_matches_no_wanted_value() -> None:
    found = facts(Modality="DX", BodyPartExamined="", ImageComments="  ")

    assert not matches({"StudyDescription": "*"}, found)
    assert not matches({"Rows": {"min": 0}}, found)
    assert matches({"StudyDescription": {"absent": True}}, found)
    assert matches({"BodyPartExamined": {"absent": True}}, found), "blank is missing"
    assert matches({"ImageComments": {"absent": True}}, found)
    assert not matches({"Modality": {"absent": True}}, found)
    assert matches({"Modality": {"absent": False}}, found)


def test_a_missing_attribute_makes_a_negation_hold() -> None:
    assert matches({"not": {"Modality": "CT"}}, facts())
    assert not matches({"not": {"Modality": "CT"}}, facts(Modality="CT"))
    assert matches({"not": {"Modality": "CT", "Rows": 1}}, facts(Modality="CT", Rows=2))


def test_any_of_several_values_is_enough() -> None:
    found = facts(ImageType=["DERIVED", "SECONDARY", "POST"], PixelSpacing=["0.1", "0.3"])

    assert matches({"ImageType": "secondary"}, found)
    assert not matches({"ImageType": "primary"}, found)
    assert matches({"PixelSpacing": {"min": 0.2}}, found)
    assert matches({"not": {"ImageType": "primary"}}, found)


def test_spaces_and_nulls_around_a_value_mean_nothing() -> None:
    found = facts_in("1.2.840.10008.1.2.1", Modality="DX ", StudyDescription=" Chest  ")

    assert matches({"Modality": " DX", "StudyDescription": "chest"}, found)


@pytest.mark.parametrize(
    ("character_set", "text", "pattern"),
    [
        ("ISO_IR 100", "Röntgen Thorax", "röntgen*"),
        (["", "ISO 2022 IR 87"], "胸部正面", "胸部*"),
        (["", "ISO 2022 IR 149"], "흉부 PA", "흉부*"),
        ("ISO_IR 144", "Грудная клетка", "грудная*"),
        ("GB18030", "胸部正位", "胸部?位"),
        ("ISO_IR 192", "Θώρακας", "θώρακας"),
    ],
)
def test_a_description_in_another_character_set(
    character_set: object, text: str, pattern: str
) -> None:
    found = facts(SpecificCharacterSet=character_set, StudyDescription=text)

    assert matches({"StudyDescription": pattern}, found)
    assert not matches({"StudyDescription": "?"}, found)


@pytest.mark.parametrize("transfer_syntax_uid", [IMPLICIT, BIG_ENDIAN])
def test_each_encoding_is_read(transfer_syntax_uid: str) -> None:
    found = facts_in(transfer_syntax_uid, Modality="DX", Rows=513, BodyPartExamined="CHEST")

    assert matches({"Modality": "DX", "Rows": 513, "BodyPartExamined": "chest"}, found)


def test_of_a_header_that_cannot_be_read_no_attribute_is_there() -> None:
    found = StudyFacts("CR1", "HILUM", header=b"\x08\0\x60\0CS\xff\xff no header")

    assert matches({"Modality": {"absent": True}, "view": "UNKNOWN"}, found)
    assert matches({"age": {"absent": True}}, found)


@pytest.mark.parametrize("codec", ["undefined", "punycode"])
def test_of_a_character_set_that_decodes_no_text_no_text_is_there(codec: str) -> None:
    """pydicom looks the name up among the codecs of Python."""
    header = header_of({"StudyDescription": "Thorax é", "Rows": 512})
    found = StudyFacts(
        "CR1", "HILUM", header=header.replace(b"ISO_IR 192", codec.encode().ljust(10))
    )

    assert matches({"StudyDescription": {"absent": True}, "Rows": 512}, found)


def test_ae_titles_are_compared_with_their_case() -> None:
    assert matches({"calling": "CR*", "called": ["ER", "HILUM"]}, facts())
    assert not matches({"calling": "cr1"}, facts())


@pytest.mark.parametrize(("network", "expected"), [("10.1.0.0/16", True), ("10.1.2.4", False)])
def test_a_peer_is_an_address_or_a_range(network: str, expected: bool) -> None:
    assert matches({"peer": network}, facts()) is expected


def test_an_unknown_peer_is_in_no_range() -> None:
    assert not matches({"peer": "0.0.0.0/0"}, StudyFacts("CR1", "HILUM"))


def test_the_view_is_the_one_that_the_guard_reads() -> None:
    assert matches({"view": ["PA", "AP"]}, facts(ViewPosition="PA"))
    assert matches({"view": "LATERAL"}, facts(ViewPosition="LL"))
    assert matches({"view": "UNKNOWN"}, facts())


def test_an_age_is_stated_or_between_two_dates() -> None:
    child = facts(PatientAge="011Y")
    adult = facts(PatientBirthDate="19700101", StudyDate="20261126")

    assert matches({"age": {"max": 17}}, child)
    assert not matches({"age": {"max": 17}}, adult)
    assert matches({"age": {"min": 18}}, adult)
    assert matches({"age": {"absent": True}}, facts())


def test_a_campaign_is_a_fact() -> None:
    fetched = StudyFacts("PACS", "HILUM", is_of_campaign=True)

    assert matches({"campaign": True}, fetched)
    assert matches({"campaign": False}, facts())


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ({"Modalty": "CR"}, "did you mean 'Modality'?"),
        ({"modality": "CR"}, "did you mean 'Modality'?"),
        ({"Caling": "CR"}, "did you mean 'calling'?"),
        ({"Zzzzzz": "CR"}, "facts of ours are calling, called, peer, view, age, campaign, not"),
        ({"PatientName": "*"}, "names a person"),
        ({"PatientID": "1"}, "names a person"),
        ({"OtherPatientIDs": "1"}, "names a person"),
        ({"AccessionNumber": "1"}, "names a person, an order"),
        ({"ReferringPhysicianName": "1"}, "names a person"),
        ({"StudyInstanceUID": "1.2"}, "one study"),
        ({"PatientBirthDate": "2010*"}, "use age = "),
        ({"PatientAge": "011Y"}, "use age = "),
        ({"PixelData": "1"}, "this is O"),
        ({"ViewCodeSequence": "1"}, "this is SQ"),
        ({"TransferSyntaxUID": "1"}, "use Modality"),
        ({"Rows": "512"}, "write it without quotes"),
        ({"Rows": True}, "write it without quotes"),
        ({"Rows": {"mn": 5}}, "must be { min"),
        ({"Rows": {}}, "must be { min"),
        ({"Rows": {"min": 5, "max": 4}}, "min is above max"),
        ({"Rows": {"absent": 1}}, "absent = true"),
        ({"Modality": 5}, "write it in quotes"),
        ({"Modality": []}, "must not be an empty list"),
        ({"Modality": " "}, "must not be blank"),
        ({"Modality": {"min": 1}}, "takes a text"),
        ({"peer": "10.1.2.3/8"}, "has host bits set"),
        ({"view": "FRONT"}, "no view 'FRONT'"),
        ({"age": 18}, "in years"),
        ({"campaign": "yes"}, "true (a campaign fetched it)"),
        ({"not": {}}, "a table of conditions"),
        ({"not": {"not": {"Modality": "CT"}}}, "another `not`"),
        ({"not": {"Modalty": "CT"}}, "not: Modalty"),
    ],
)
def test_a_condition_that_means_nothing_is_refused_with_what_to_do(
    when: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(WrongCondition) as caught:
        parse_conditions(when)

    assert said in str(caught.value)


def test_all_problems_of_a_rule_are_named_at_once() -> None:
    with pytest.raises(WrongCondition, match=r"Modalty: .*; Rows: "):
        parse_conditions({"Modalty": "CR", "Rows": "5"})


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    found = facts(ImageComments="a" * 9000)

    assert not matches({"ImageComments": "*a" * 30 + "b"}, found)
