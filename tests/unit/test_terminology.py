"""Every code is verified or private, and the codes that public label maps get wrong cannot come in."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.models import terminology

TABLE = Path(terminology.__file__).with_name("terminology.toml")


def _row(**changes: object) -> dict[str, object]:
    row = {"text": "Edema", "scheme": "SCT", "value": "19242006", "meaning": "Pulmonary edema", "status": "A", "source": "CID 3700"}
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


@pytest.mark.parametrize("value", ["95436003", "196121004", "60046080", "60046009", "12", "6004600x", "", "٦٠٠٤٦٠٠٨"])
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
    ],
)
def test_codes_of_other_things_are_denied_although_their_digits_are_right(value: str, why: str) -> None:
    assert terminology.is_snomed_identifier(value)
    assert any("deny list" in problem and why in problem for problem in _problems(_row(value=value)))


def test_pneumothorax_of_radlex_is_denied_for_thickening() -> None:
    assert any("pneumothorax" in problem for problem in _problems(_row(scheme="RADLEX", value="RID5352")))


def test_an_uncertain_code_must_be_private_and_a_private_one_uncertain() -> None:
    assert any("go together" in problem for problem in _problems(_row(status="C")))
    assert any("go together" in problem for problem in _problems(_row(scheme="99HILUM", value="EDEMA")))


def test_all_problems_of_a_row_come_at_once() -> None:
    problems = _problems(_row(value="19242007", status="D", meaning="x" * 65, colour="red"))
    assert len(problems) == 4
    assert any("colour" in problem for problem in problems)


def test_a_row_that_lacks_fields_says_which() -> None:
    assert _problems({"text": "Edema"}) == ["terminology: edema: missing meaning, scheme, source, status, value"]


def test_two_concepts_cannot_share_a_code() -> None:
    with pytest.raises(ConfigurationError, match="has the code of edema"):
        terminology.parse({"version": "t", "concepts": {"edema": _row(), "oedema": _row()}, "denied": {}})


def test_status_a_means_that_dicom_has_the_code_with_this_meaning() -> None:
    from pydicom.sr._concepts_dict import concepts as dicom

    meanings = {(scheme, value): entry[0] for scheme, rows in dicom.items() for row in rows.values() for value, entry in row.items()}
    for concept in terminology.load().concepts.values():
        found = meanings.get((concept.code.scheme, concept.code.value))
        assert (found == concept.code.meaning) == (concept.status == "A"), concept


def test_no_finding_is_a_private_code_that_nobody_may_assert() -> None:
    concept = terminology.load().concepts["no_finding"]
    assert concept.code.scheme == "99HILUM"
    assert not concept.is_assertable
    assert "not a statement of normality" in concept.code.meaning


def test_every_label_of_nih_and_chexpert_has_a_concept() -> None:
    nih = "atelectasis cardiomegaly pleural_effusion infiltration mass nodule pneumonia pneumothorax consolidation edema emphysema fibrosis"
    chexpert = "no_finding enlarged_cardiomediastinum lung_opacity lung_lesion pleural_other fracture support_devices"
    assert {*nih.split(), "pleural_thickening", "hiatal_hernia", *chexpert.split()} == set(terminology.load().concepts)
