"""`hilum rules`: the commands on files of settings, objects and cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.services.rules.cases import outcomes
from hilum.settings import load
from tests.support.objects.radiograph import radiograph, ramp
from tests.support.rules.studies import settings_with
from tests.support.server.commands import hilum

RULES = """
[receive]
ae_titles = ["HILUM", "ER"]
[destinations.pacs]
[[rules]]
name = "er"
when = { called = "ER", Modality = ["CR", "DX"] }
then = { priority = "urgent" }
[[rules]]
name = "child"
when = { age = { max = 17 } }
then = { not_analysed = true, reason = "no release is for children" }
[[rules]]
name = "default"
"""
CASES = """
[[case]]
name = "a radiograph of the emergency room"
called = "ER"
Modality = "DX"
expect = "er"
[[case]]
name = "a child"
PatientAge = "011Y"
expect = "child"
[[case]]
name = "an object"
file = "image.dcm"
expect = "default"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hilum.toml").write_text(RULES)
    dataset = radiograph(ramp(8, 8), PatientName="DOE^JANE", StudyInstanceUID="1.2.3")
    dataset.SOPInstanceUID = "1.2.3.1"
    dataset.SeriesInstanceUID = "1.2.3.0"
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    dataset.save_as(tmp_path / "image.dcm", enforce_file_format=True)
    return tmp_path


def test_a_file_is_explained_before_it_is_sent(folder: Path) -> None:
    words = ("rules", "explain", "image.dcm", "--called", "ER", "--calling", "CR1")
    found = hilum(*words, folder=folder)
    answer = json.loads(hilum(*words, "--json", folder=folder).stdout)

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[:4] == [
        "from CR1 to ER",
        "→ 1 er",
        '      ✓ called: wanted "ER", found "ER"',
        '      ✓ Modality: wanted ["CR", "DX"], found "CR"',
    ]
    assert "DOE" not in found.stdout
    assert (answer["decides"], [rule["matches"] for rule in answer["rules"]]) == (
        "er",
        [True, False, True],
    )


def test_cases_are_a_test_of_the_rules(folder: Path) -> None:
    (folder / "cases.toml").write_text(CASES)
    right = hilum("rules", "test", "cases.toml", folder=folder)
    (folder / "cases.toml").write_text(CASES.replace('expect = "child"', 'expect = "er"'))
    wrong = hilum("rules", "test", "cases.toml", folder=folder)

    assert (right.returncode, right.stdout.count("✓")) == (0, 3), right.stderr
    assert wrong.returncode == 1
    assert "✗ a child: expected er, and child decides" in wrong.stdout
    assert "1 of 3 cases are decided by another rule" in wrong.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no cases in it"),
        ("case = 1", "no cases in it"),
        ("[[case]]\nexpect = 'err'", "expect must name a rule; there are"),
        ("[[case]]\nexpect = 'er'\nModalty = 'DX'", "Modalty: no keyword of DICOM"),
        ("[[case]]\nexpect = 'er'\nRows = 'x'", "Rows"),
        ("[[case]]\nexpect = 'er'\ncalling = 5", "are texts"),
        ("[[case]]\nexpect = 'er'\nfile = 'hilum.toml'\nRows = 5", "not both"),
        ("[[case]]\nexpect = 'er'\nfile = 'hilum.toml'", "Give a DICOM file"),
        ("[[case", "not valid TOML"),
    ],
)
def test_a_case_that_means_nothing_is_refused(folder: Path, text: str, said: str) -> None:
    (folder / "cases.toml").write_text(text)
    settings = load(folder / "hilum.toml")
    assert settings.rule_table is not None

    with pytest.raises(ConfigurationError) as caught:
        outcomes(folder / "cases.toml", settings, settings.rule_table)
    assert said in "\n".join(caught.value.problems)


def test_without_rules_the_commands_say_so(tmp_path: Path) -> None:
    (tmp_path / "hilum.toml").write_text("")
    found = hilum("rules", "show", folder=tmp_path)

    assert found.returncode == 1
    assert "there are no rules: all studies are alike" in found.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rules]]\nname = 'a'\nwhen = { Modality = 'DX' }", "the last rule must have no `when`"),
        ("[[rules]]\nname = 'a'\n[[rules]]\nname = 'b'", "a: it has no `when`"),
        (
            "[[rules]]\nname = 'a'\nwhen = { Modality = 'DX' }\n[[rules]]\nname = 'a'",
            "a: two rules have this name",
        ),
        ("[[rules]]\nname = 'a'\nthen = { destinations = ['x'] }", "a: no destination 'x'"),
        ("[[rules]]\nname = 'a'\nthen = { quiet = 5 }", "rules.a.then.quiet: unknown setting"),
        ("[[rules]]\nname = 'a'\nthen = { priority = 'x' }", "rules.a.then.priority: Input"),
        ("[[rules]]\nwhat = 1", "rules.number 1.name: Field required"),
        ("[[rules]]\nname = 'a'\nthen = { not_analysed = true }", "not_analysed needs a reason"),
        ("[[rules]]\nname = 'a'\nthen = { reason = 'x' }", "reason is that of not_analysed"),
        ("[[rules]]\nname = 'a'\nthen = { releases = [] }", "rules.a.then.releases"),
        (
            "[[rules]]\nname = 'a'\nwhen = { called = 'ER' }\n[[rules]]\nname = 'b'",
            "a: when.called: ER is not in receive.ae_titles; add it there",
        ),
        (
            "[[rules]]\nname = 'a'\nwhen = { release = 'x' }\n[[rules]]\nname = 'b'",
            "the releases are what a rule decides",
        ),
        ("[[rules]]\nname = '../a'", "rules.../a.name"),
        (
            "[[rules]]\nname = 'a'\n[senders.CR1]\npriority = 'urgent'",
            "they stand beside the former way to say it",
        ),
        ("[[rules]]\nname = 'a'\n[senders.CR1]\npriority = 'urgent'", 'name = "from CR1"'),
    ],
)
def test_rules_that_cannot_be_followed_are_refused_with_what_to_do(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "hilum.toml").write_text(text)

    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "hilum.toml")
    assert said in "\n".join(caught.value.problems)


def test_the_settings_of_a_sender_that_are_about_its_associations_stay(tmp_path: Path) -> None:
    text = "[[rules]]\nname = 'a'\n[senders.CR1]\nmaximum_associations = 2"
    (tmp_path / "hilum.toml").write_text(text)

    assert [rule.name for rule in load(tmp_path / "hilum.toml").rules] == ["a"]


def test_a_release_that_a_rule_names_is_active() -> None:
    settings = settings_with(
        {"name": "dx", "when": {"Modality": "DX"}, "then": {"releases": ["b@1", "chest@1"]}}
    )

    assert settings.active_releases == ("chest@1", "b@1")
