"""`hilum rules explain`: each condition, wanted and found, and nothing of the patient."""

from __future__ import annotations

from hilum.rules.explanation import ABSENT, HIDDEN, as_text, explain
from tests.support.rules.studies import facts, settings_with

PATIENT = {
    "PatientName": "Müller^Anna Li",
    "PatientID": "P-4711",
    "PatientBirthDate": "19700203",
    "PatientSex": "F",
    "AccessionNumber": "A99887",
    "PatientAge": "056Y",
}


def test_the_first_match_is_marked_and_later_rules_are_shown() -> None:
    settings = settings_with(
        {"name": "ct", "when": {"Modality": "CT", "Rows": {"min": 5}}},
        {"name": "dx", "when": {"Modality": ["CR", "DX"]}},
        {"name": "all", "when": {"not": {"Modality": "MR"}}},
    )
    assert settings.rule_table is not None
    found = explain(settings.rule_table, facts(Modality="DX"))

    assert [(rule.name, rule.matches, rule.decides) for rule in found] == [
        ("ct", False, False),
        ("dx", True, True),
        ("all", True, False),
        ("default", True, False),
    ]
    assert list(as_text(found)) == [
        "  1 ct",
        '      ✗ Modality: wanted "CT", found "DX"',
        "      ✗ Rows: wanted 5 or more, found absent",
        "→ 2 dx",
        '      ✓ Modality: wanted ["CR", "DX"], found "DX"',
        "  3 all",
        "      ✓ not, so not all of these:",
        '          ✗ Modality: wanted "MR", found "DX"',
        "  4 default",
        "      ✓ all other studies",
    ]


def test_no_value_of_the_patient_is_shown() -> None:
    settings = settings_with(
        {
            "name": "all",
            "when": {
                "PatientSex": "F",
                "age": {"min": 18},
                "StudyDescription": "*",
                "ImageComments": "*",
                "SeriesDescription": "*",
            },
        }
    )
    assert settings.rule_table is not None
    written = facts(
        **PATIENT,
        StudyDescription="Thorax MÜLLER, anna (P-4711)",
        ImageComments="called_Mueller 4711 born 19700203 for A99887",
        SeriesDescription="Li likes light",
    )
    found = explain(settings.rule_table, written)
    shown = "\n".join(as_text(found))

    conditions = {item.name: item for item in found[0].conditions}
    assert conditions["PatientSex"].found == HIDDEN
    assert conditions["age"].found == HIDDEN
    for secret in ("müller", "anna", "4711", "19700203", "a99887", "056", "56"):
        assert secret not in shown.casefold(), secret
    assert '"*** likes light"' in shown, "a short word is masked where it stands alone"
    assert "Thorax" in shown


def test_what_is_missing_is_said() -> None:
    settings = settings_with({"name": "all", "when": {"PatientSex": "F", "age": {"min": 1}}})
    assert settings.rule_table is not None
    (first, _) = explain(settings.rule_table, facts())

    assert [item.found for item in first.conditions] == [ABSENT, ABSENT]
