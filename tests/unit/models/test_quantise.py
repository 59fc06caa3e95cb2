"""int8 only through a gate: a network that survives becomes a release, one that does not leaves a report and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.known_answers.acceptance import auc, judge
from hilum.models.known_answers.image_folder import read_cases
from hilum.models.manifest import catalogue
from hilum.models.manifest.tables import QuantisationTable
from tests.support.models.quantising import LIMITS, Place


def test_a_network_that_keeps_its_scores_becomes_a_release_that_can_be_built(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    outcome = place.quantise()
    assert outcome.judgement.is_accepted, outcome.judgement.problems
    assert place.left() == [
        "tiny@1",
        "tiny@1.int8",
        "tiny@1.int8.quantisation.json",
        "tiny@1.int8.quantisation.md",
    ]
    release = catalogue.load_catalogue(place.manifests)["tiny@1.int8"]
    assert (release.precision, release.engine, release.is_trained, release.labels) == (
        "int8",
        "onnxruntime",
        True,
        catalogue.load_catalogue(place.manifests)["tiny@1"].labels,
    )
    build.build(["tiny@1.int8"], place.manifests, place.built, progress=lambda _: None)
    assert build.is_built(release, place.built)
    operators = {
        node.op_type
        for node in onnx.load(place.manifests / "tiny@1.int8/model_int8.onnx").graph.node
    }
    assert {"QuantizeLinear", "DequantizeLinear"} <= operators


def test_the_report_holds_what_was_measured_and_no_file_names(tmp_path: Path) -> None:
    outcome = Place(tmp_path).quantise()
    report = json.loads((tmp_path / "manifests/tiny@1.int8.quantisation.json").read_text())
    assert (report["is_accepted"], report["calibration_images"], report["cases"]) == (True, 24, 40)
    assert 0 < report["labels"][0]["largest_score_difference"] <= 0.05
    assert report["labels"][0]["auc_before"] == 1.0
    words = outcome.report.read_text()
    assert "tiny@1.int8: accepted" in words
    assert ".npy" not in words + json.dumps(report)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda text: "\n".join(line.partition(",")[0] for line in text.splitlines()),
            "one for a label at least",
        ),
        (lambda text: text.replace("0.npy,", "0.npy,1,", 1), "row 1 has more or fewer cells"),
        (lambda text: text + "last.npy\n", "row 41 has more or fewer cells"),
    ],
)
def test_a_table_without_truth_or_with_shifted_rows_is_refused(
    tmp_path: Path, change: Callable[[str], str], says: str
) -> None:
    place = Place(tmp_path)
    place.cases.write_text(change(place.cases.read_text()))
    with pytest.raises(ConfigurationError, match=says):
        place.quantise()


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.cases.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="no CSV file"):
        place.quantise()


def test_a_network_that_gives_no_numbers_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    release, limits = (
        catalogue.load_catalogue(place.manifests)["tiny@1"],
        QuantisationTable(maximum_score_difference=0.1),
    )
    judgement = judge(np.zeros((2, 3)), np.full((2, 3), np.nan), None, release, limits)
    assert judgement.problems == ("a logit is infinite or not a number",)


def test_a_network_that_loses_its_scores_leaves_nothing_but_the_report(tmp_path: Path) -> None:
    place = Place(tmp_path, limit=0.01, outlier=400.0)
    outcome = place.quantise()
    assert not outcome.judgement.is_accepted
    assert any("a score moves by" in problem for problem in outcome.judgement.problems)
    assert place.left() == [
        "tiny@1",
        "tiny@1.int8.quantisation.json",
        "tiny@1.int8.quantisation.md",
    ]
    assert "tiny@1.int8: refused" in outcome.report.read_text()


def test_without_cases_scores_alone_are_compared_on_images_that_calibrated_nothing(
    tmp_path: Path,
) -> None:
    outcome = Place(tmp_path).quantise(cases=None)
    report = json.loads((tmp_path / "manifests/tiny@1.int8.quantisation.json").read_text())
    assert (report["calibration_images"], report["cases"], report["is_auc_compared"]) == (
        18,
        6,
        False,
    )
    assert "the area under the ROC curve was not compared" in outcome.report.read_text()


def test_cases_that_were_calibrated_with_are_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    np.save(place.calibration / "24.npy", np.load(place.cases.parent / "0.npy"))
    with pytest.raises(ConfigurationError, match=r"1 cases were calibrated with, 0\.npy first"):
        place.quantise()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (LIMITS.format(0.05), "", "has no \\[quantisation\\] table"),
        ('precision = "f32"', 'precision = "int8"', "its precision is int8"),
    ],
)
def test_a_release_without_limits_or_in_another_precision_is_refused(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    place = Place(tmp_path)
    path = place.manifests / "tiny@1/manifest.toml"
    text = path.read_text().replace(
        'name = "onnxruntime"\n', 'name = "onnxruntime"\nprecision = "f32"\n'
    )
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigurationError, match=says):
        place.quantise()


def test_too_few_images_and_a_release_that_is_there_already_are_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.quantise()
    with pytest.raises(ConfigurationError, match="exists: take another --version"):
        place.quantise()
    for number in range(12):
        (place.calibration / f"{number}.npy").unlink()
    with pytest.raises(ConfigurationError, match="12 images to calibrate with; 16 at least"):
        place.quantise(version="2")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("file,pneumothorx\n0.npy,1\n", "did you mean 'pneumothorax'"),
        ("file,pneumothorax\n0.npy,yes\n", "must be 1, 0 or empty"),
        ("file,pneumothorax\nabsent.npy,1\n", "No such file"),
        ("image\n0.npy\n", "needs a column `file`"),
    ],
)
def test_a_list_of_cases_with_mistakes_is_refused(tmp_path: Path, line: str, says: str) -> None:
    place = Place(tmp_path)
    place.cases.write_text(line)
    with pytest.raises(ConfigurationError, match=says):
        read_cases(catalogue.load_manifests(place.manifests)["tiny@1"], place.cases)


def test_an_area_that_falls_too_far_is_refused_whatever_the_scores_do(tmp_path: Path) -> None:
    release = catalogue.load_catalogue(Place(tmp_path).manifests)["tiny@1"]
    before = np.linspace(-0.01, 0.01, 30).reshape(10, 3).astype(np.float32)
    truth = {"pneumothorax": np.array([0] * 5 + [1] * 5, float)}
    limits = QuantisationTable(maximum_score_difference=0.1, maximum_auc_drop=0.02)
    assert judge(before, before, truth, release, limits).is_accepted
    fallen = judge(before, -before, truth, release, limits)
    assert [problem.split(" falls")[0] for problem in fallen.problems] == [
        "pneumothorax: the area under the ROC curve"
    ]
    assert not judge(before, before, {"pneumothorax": np.ones(10)}, release, limits).is_accepted


def test_the_area_is_that_of_mann_and_whitney() -> None:
    scores, truth = np.array([0.1, 0.4, 0.4, 0.8, 0.3]), np.array([0, 0, 1, 1, np.nan])
    assert auc(scores, truth) == pytest.approx(3.5 / 4)
    assert auc(scores, np.zeros(5)) is None
