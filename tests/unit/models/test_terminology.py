"""Every code is verified or private, and the codes that public label maps get wrong cannot come in."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.models.manifest import terminology

TABLE = Path(terminology.__file__).with_name("terminology.toml")


def _row(**changes: object) -> dict[str, object]:
    row = {
        "text": "Edema",
        "scheme": "SCT",
        "value": "19242006",
        "meaning": "Pulmonary edema",
        "status": "A",
        "source": "CID 3700",
    }
    return {**row, **changes}


def _problems(row: dict[str, object]) -> list[str]:
    denied = tomllib.loads(TABLE.read_text())["denied"]
    with pytest.raises(ConfigurationError) as caught:
        terminology.parse({"version": "t", "concepts": {"edema": row}, "denied": denied})
    return caught.value.problems


def test_the_table_of_this_installation_passes_its_own_rules() -> None:
    table = terminology.load()
    assert len(table.concepts) == 21
    assert table.version


@pytest.mark.parametrize("value", ["60046008", "36118008", "8186001", "84089009", "112674009"])
def test_verhoeff_accepts_snomed_identifiers(value: str) -> None:
    assert terminology.is_snomed_identifier(value)


@pytest.mark.parametrize(
    "value", ["95436003", "196121004", "60046080", "60046009", "12", "6004600x", "", "٦٠٠٤٦٠٠٨"]
)
def test_verhoeff_refuses_wrong_and_swapped_digits(value: str) -> None:
    assert not terminology.is_snomed_identifier(value)


def test_every_single_digit_error_is_found() -> None:
    for position in range(8):
        for digit in "0123456789":
            changed = "60046008"[:position] + digit + "60046008"[position + 1 :]
            assert terminology.is_snomed_identifier(changed) == (changed == "60046008")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("423341008", "not pulmonary edema"),
        ("47693006", "not an infiltrate"),
        ("47515009", "not an infiltrate"),
        ("67992007", "not emphysema"),
        ("164873001", "electrocardiographic"),
        ("46866001", "lower limb"),
        ("27550009", "vascular"),
        ("287272002", "septal foramen"),
        ("428937001", "unverified"),
        ("267038008", "any site"),
        ("17621005", "normal"),
        ("40779009", "plate-like"),
        ("416940007", "not a nodule"),
    ],
)
def test_codes_of_other_things_are_denied_although_their_digits_are_right(
    value: str, why: str
) -> None:
    assert terminology.is_snomed_identifier(value)
    assert any(
        "deny list" in problem and why in problem for problem in _problems(_row(value=value))
    )


@pytest.mark.parametrize(
    ("value", "why"), [("RID5352", "pneumothorax"), ("RID28836", "idiopathic")]
)
def test_codes_of_radlex_that_mean_something_else_are_denied(value: str, why: str) -> None:
    assert any(
        "deny list" in problem and why in problem
        for problem in _problems(_row(scheme="RADLEX", value=value))
    )


def test_an_uncertain_code_must_be_private_and_a_private_one_uncertain() -> None:
    assert any("go together" in problem for problem in _problems(_row(status="C")))
    assert any(
        "go together" in problem for problem in _problems(_row(scheme="99HILUM", value="EDEMA"))
    )


def test_all_problems_of_a_row_come_at_once() -> None:
    problems = _problems(_row(value="19242007", status="D", meaning="x" * 65, colour="red"))
    assert len(problems) == 4
    assert any("colour" in problem for problem in problems)


def test_a_row_that_lacks_fields_says_which() -> None:
    assert _problems({"text": "Edema"}) == [
        "terminology: edema: missing meaning, scheme, source, status, value"
    ]


def test_two_concepts_cannot_share_a_code() -> None:
    with pytest.raises(ConfigurationError, match="has the code of edema"):
        terminology.parse(
            {"version": "t", "concepts": {"edema": _row(), "oedema": _row()}, "denied": {}}
        )


def test_status_a_means_that_dicom_has_the_code_with_this_meaning() -> None:
    from pydicom.sr._concepts_dict import concepts as dicom

    meanings = {
        (scheme, value): entry[0]
        for scheme, rows in dicom.items()
        for row in rows.values()
        for value, entry in row.items()
    }
    for concept in terminology.load().concepts.values():
        found = meanings.get((concept.code.scheme, concept.code.value))
        assert (found == concept.code.meaning) == (concept.status == "A"), concept


def test_no_finding_is_a_private_code_that_nobody_may_assert() -> None:
    concept = terminology.load().concepts["no_finding"]
    assert concept.code.scheme == "99HILUM"
    assert not concept.is_assertable
    assert "not a statement of normality" in concept.code.meaning


def test_every_public_mis_code_is_denied_or_fails_its_check_digit() -> None:
    """The list of codes that at least eight public label maps of chest radiographs get wrong."""
    public = [
        "95436003",
        "196121004",
        "423341008",
        "47693006",
        "47515009",
        "67992007",
        "164873001",
        "46866001",
        "27550009",
        "287272002",
    ]
    denied = terminology.load().denied
    assert all(("SCT", value) in denied for value in public)
    assert [value for value in public if not terminology.is_snomed_identifier(value)] == [
        "95436003",
        "196121004",
    ]
    used = {
        (concept.code.scheme, concept.code.value)
        for concept in terminology.load().concepts.values()
    }
    assert used & set(denied) == set()


def test_every_concept_says_where_its_code_comes_from() -> None:
    for concept in terminology.load().concepts.values():
        assert len(concept.source) > 10, concept.key
        assert concept.status in "ABC"


SIZES = {
    "nih_14": 14,
    "chexpert_14": 14,
    "chexpert_5": 5,
    "jfhealthcare_5": 5,
    "torchxrayvision_18": 18,
}


def test_every_label_of_the_public_sets_has_a_concept_in_the_published_order() -> None:
    table = terminology.load()
    assert {name: len(known.labels) for name, known in table.label_sets.items()} == SIZES
    for known in table.label_sets.values():
        keys = [key for _, key in known.labels]
        assert len(set(keys)) == len(keys)
        assert known.cites
    assert {key for known in table.label_sets.values() for _, key in known.labels} == set(
        table.concepts
    ), "no concept without a use"


def test_label_sets_are_those_of_the_manifests() -> None:
    from hilum.models.manifest.catalogue import load_catalogue
    from tests.support.models.releases import MANIFESTS

    releases, sets = load_catalogue(MANIFESTS), terminology.load().label_sets
    for release, name in (
        ("densenet121_untrained@1", "nih_14"),
        ("vit_b16_untrained@1", "chexpert_14"),
    ):
        assert [label.key for label in releases[release].labels] == [
            key for _, key in sets[name].labels
        ]


def test_a_label_of_a_set_needs_a_concept() -> None:
    table = {
        "version": "t",
        "concepts": {"edema": _row()},
        "label_sets": {"mine": {"cites": "x", "labels": [["Oedema", "oedema"]]}},
    }
    with pytest.raises(ConfigurationError, match="mine: Oedema has no concept"):
        terminology.parse(table)


def test_a_public_label_leads_to_its_concept() -> None:
    table = terminology.load()
    assert (
        table.meant_by("Pleural_Thickening"),
        table.meant_by("Effusion"),
        table.meant_by("x"),
    ) == (
        "pleural_thickening",
        "pleural_effusion",
        None,
    )
