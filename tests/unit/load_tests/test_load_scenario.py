"""Scenario files: what they may say, and how a mistake in one is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from load_tests.load import run, scenario, studies
from load_tests.load.arrivals import starts
from load_tests.load.scenario import Kind, ScenarioError
from testing.phantoms.phantom import make_study, save


@pytest.mark.parametrize("name", scenario.names())
def test_every_scenario_says_what_it_shows_and_has_goals(name: str):
    found = scenario.read(name)
    assert found.shows
    assert {"lost_studies", "changed_reports"} <= set(found.goals)
    assert found.arrivals.unit == "studies/s" or found.probe_seconds
    assert next(starts(found.arrivals.schedule(found.seconds, 1.0)), None) is not None


def test_the_scenarios_that_are_asked_for_are_there():
    assert {
        "idle",
        "steady",
        "saturation",
        "overload",
        "bursts",
        "ramp",
        "mixed",
        "small",
        "large",
    } <= set(scenario.names())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("second = 1", "second is not known: did you mean seconds?"),
        ("[arival]\nrate = 1", "arival is not known: did you mean arrivals?"),
        ("[sender]\nprocess = 1", "sender.process is not known: did you mean processes?"),
        ("[[mix]]\nrow = 1", "mix.0.row is not known: did you mean rows?"),
        ("[[mix]]\ntransfer_syntax = 'JPEGLS'", "did you mean JPEGLSLossless?"),
        ("[goals]\nlost_study = 0", "no figure is called lost_study: did you mean lost_studies?"),
        ("seconds = -1", "seconds: Input should be greater than 0"),
        ("seconds =", "Invalid value"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(text: str, sentence: str):
    with pytest.raises(ScenarioError, match=r"^odd: ") as error:
        scenario.parse("odd", text)
    assert sentence in str(error.value)


def test_an_unknown_scenario_names_the_nearest():
    with pytest.raises(ScenarioError, match=r"no scenario 'stedy': did you mean steady\?"):
        scenario.read("stedy")


def test_the_command_line_wins():
    changed = run.chosen(
        run.parse(["idle", "--seconds", "7", "--rate", "3", "--quiet", "0.5", "--release", "x@1"])
    )
    assert (changed.seconds, changed.arrivals.rate, changed.quiet_seconds, changed.release) == (
        7,
        3,
        0.5,
        "x@1",
    )


def test_to_needs_listen():
    with pytest.raises(SystemExit) as ended:
        run.parse(["--to", "HILUM@127.0.0.1:11112"])
    assert ended.value.code == 2


def test_rates_are_multiples_of_the_saturation_where_the_scenario_says_so():
    found = scenario.parse("x", 'probe_seconds = 1\n[arrivals]\nunit = "saturation"\nrate = 0.5')
    assert found.arrivals.schedule(10, 8.0) == ("constant", (4.0, 10))


def test_the_users_files_are_studies_and_other_files_are_left_out(tmp_path: Path):
    for seed in (1, 2):
        for image in make_study(seed, rows=16, columns=16):
            save(image, tmp_path / f"{image.SOPInstanceUID}.dcm")
    (tmp_path / "notes.txt").write_text("no DICOM")
    mix = studies.make([Kind(files=(tmp_path,))])
    assert [len(study) for study in mix.parts[0].studies] == [2, 2]


def test_a_folder_without_dicom_files_is_refused_without_its_name(tmp_path: Path):
    with pytest.raises(ScenarioError) as error:
        studies.make([Kind(files=(tmp_path,))])
    assert str(tmp_path) not in str(error.value)
