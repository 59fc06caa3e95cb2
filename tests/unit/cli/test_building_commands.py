"""`hilum models build` and `quantise` at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hilum.cli import app
from tests.support.models.quantising import Place

RUNNER = CliRunner()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _run(place: Place, *words: str) -> tuple[int, str]:
    settings = place.manifests.parent / "hilum.toml"
    models = f'manifests = "{place.manifests}"\nbuilt = "{place.built}"\nreleases = ["tiny@1"]\n'
    settings.write_text(
        f'[site]\nstate_dir = "{place.manifests.parent / "state"}"\n[models]\n{models}'
    )
    done = RUNNER.invoke(app, ["models", *words, "--config", str(settings)])
    return done.exit_code, done.output


def test_one_command_builds_several_profiles(place: Place) -> None:
    status, said = _run(
        place, "build", "--profile", "onnxruntime", "--profile", "tensorrt", "--accelerator", "cuda"
    )
    assert status == 0, said
    assert 'name : "cuda"' in (place.built / "onnxruntime/tiny__1/config.pbtxt").read_text()
    assert (place.built / "tensorrt/tiny__1/request.json").is_file()
    status, said = _run(place, "check")
    assert (status, "tensorrt: laid ready" in said) == (0, True), said


def test_a_damaged_network_is_not_copied_for_another_profile(place: Place) -> None:
    """Its numbers would be recorded as the release's."""
    assert _run(place, "build", "--profile", "onnxruntime")[0] == 0
    (built,) = place.built.glob("onnxruntime/tiny__1/1/model.onnx")
    good = built.read_bytes()
    built.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    status, said = _run(place, "build", "--profile", "tensorrt", "--accelerator", "cuda")
    assert status == 0, said
    (other,) = place.built.glob("tensorrt/tiny__1/1/model.onnx")
    assert other.read_bytes() == good


def test_an_unknown_accelerator_is_named(place: Place) -> None:
    status, said = _run(place, "build", "--profile", "onnxruntime", "--accelerator", "cudnn")
    assert (status, "known: none, cuda, tensorrt, tensorrt_fp16" in said) == (2, True)


def test_a_quantised_release_is_accepted_and_can_be_built(place: Place) -> None:
    status, said = _run(
        place,
        "quantise",
        "tiny@1",
        "--calibration",
        str(place.calibration),
        "--cases",
        str(place.cases),
    )
    assert (status, "tiny@1.int8: accepted; report: " in said) == (0, True), said
    assert _run(place, "build", "tiny@1.int8")[0] == 0


def test_a_quantised_release_that_moves_scores_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path, limit=0.01, outlier=400.0)
    status, said = _run(
        place,
        "quantise",
        "tiny@1",
        "--calibration",
        str(place.calibration),
        "--cases",
        str(place.cases),
    )
    assert status == 1
    assert "tiny@1.int8: refused" in said
    assert "a score moves by" in said


def test_that_no_areas_are_compared_must_be_said(place: Place) -> None:
    status, said = _run(place, "quantise", "tiny@1", "--calibration", str(place.calibration))
    assert (status, "--scores-only" in said) == (2, True)
    assert (
        _run(place, "quantise", "tiny@1", "--calibration", str(place.calibration), "--scores-only")[
            0
        ]
        == 0
    )
