"""A stranger's model: the tutorial of docs/models/models.md word by word, and the same way with a network that the test makes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hilum.models.build import build
from hilum.models.formats.identity import file_sha256
from hilum.models.manifest import catalogue
from testing.phantoms import phantom
from testing.tiny_release import tiny_logits, tiny_network
from testing.tutorial import follow, matches
from tests.support.models.triton import RemoteTriton, killed_afterwards, require_triton
from tests.support.server import commands

PAGE = Path(__file__).resolve().parents[3] / "docs/models/models.md"
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith("HILUM_")
} | {"COLUMNS": "80"}


def test_the_tutorial_is_true(tmp_path: Path) -> None:
    if shutil.which("patch") is None:
        pytest.skip("the edits of the page are applied with patch")
    data = Path(os.environ.get("HILUM_TEST_DATA", "/nowhere"))
    if not data.is_dir():
        pytest.skip("HILUM_TEST_DATA names no folder: the real network is not ours to publish")
    shutil.copyfile(data / "models/mobilenetv3_small_nih15_int8.onnx", tmp_path / "chest.onnx")
    shutil.copyfile(data / "dicom/chest/rsna_pa_mono2_jpeg.dcm", tmp_path / "pa.dcm")
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## A stranger's model") :].split("\n## ")[0]
    commands = list(follow(section, tmp_path, ENVIRONMENT))
    assert [command for command in commands if command.startswith("hilum models build")]


def test_a_page_that_says_something_else_is_noticed() -> None:
    assert matches("a\nb 1 c\nd\n", "a\nb … c\n…\n")
    assert matches("a\nb\nc\n", "a\n…\nc\n")
    assert not matches("a\nb\n", "a\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a1\n", "a2\n")


def hilum(folder: Path, *words: str | Path, status: int = 0, **settings: str) -> str:
    done = commands.hilum(*words, folder=folder, environment=settings)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the tiny network was brought, written down, given a golden case, and built, by commands alone."""
    folder = tmp_path_factory.mktemp("brought")
    (folder / "hilum.toml").write_text(
        '[site]\nstate_dir = "state"\n[models]\nmanifests = "models"\nreleases = ["tiny@1"]\n'
    )
    (folder / "labels.txt").write_text("Effusion\nPneumothorax\nCardiomegaly\n")
    hilum(folder, "models", "new", tiny_network(folder / "tiny.onnx"), "--labels", "labels.txt")
    manifest = folder / "models/tiny@1/manifest.toml"
    manifest.write_text(
        manifest.read_text().replace("EDIT: ", "known: ").replace('"openvino"', '"onnxruntime"')
    )
    (dataset,) = phantom.make_study(seed=5, views=("PA",))
    phantom.save(dataset, folder / "pa.dcm")
    hilum(folder, "prepare", "pa.dcm", "--release", "tiny@1", "--out", manifest.with_name("pa.npy"))
    image = np.load(manifest.with_name("pa.npy"))
    (logits,) = tiny_logits(255 * (image[None].astype(np.float32) - 127.5) / 127.5)
    with manifest.open("a") as file:
        file.write(
            '\n[[golden]]\nfile = "pa.npy"\nsha256 ='
            f' "{file_sha256(manifest.with_name("pa.npy"))}"\n'
            f"logits = [{', '.join(f'{value:.5f}' for value in logits)}]\ntolerance = 0.001\n"
        )
    hilum(folder, "models", "build", "tiny@1")
    return folder


def test_a_brought_network_answers_as_its_author_computed(brought: Path) -> None:
    said = hilum(brought, "models", "check", "--run")
    assert "golden case pa.npy is" in said
    assert said.endswith("\n0 problems\n")


def test_what_is_shown_names_labels_codes_and_what_is_built(brought: Path) -> None:
    said = hilum(brought, "models", "show", "tiny@1")
    for line in (
        "built             embedded",
        "golden cases      pa.npy",
        "calibration       none: scores are no probabilities",
    ):
        assert f"\n{line}\n" in said
    assert "pleural_effusion  never       SCT 60046008  A       Pleural effusion" in said
    assert "tiny@1" in hilum(brought, "models", "list")


def test_a_release_that_is_not_there_is_named_with_the_nearest(brought: Path) -> None:
    for command in ("show", "check"):
        hilum(brought, "models", command, "tinny@1", status=2)


@pytest.fixture(scope="module")
def served(brought: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a tritonserver with the brought release."""
    require_triton()
    release = catalogue.load_catalogue(brought / "models")["tiny@1"]
    assert build.is_built(release, brought / "state/models")
    server = RemoteTriton(
        brought / "state/models", tmp_path_factory.mktemp("triton"), [release.triton_name]
    )
    with killed_afterwards(server):
        yield server.start()


def test_a_real_triton_gives_the_known_answers(brought: Path, served: str) -> None:
    said = hilum(brought, "models", "check", "--run", HILUM_TRITON__URL=served)
    assert f"Triton at {served}: the canary is answered as known" in said
    assert f"Triton at {served}: golden case pa.npy is answered as known" in said


def test_a_model_that_is_absent_in_triton_is_a_problem(brought: Path, served: str) -> None:
    shutil.copytree(brought / "models/tiny@1", brought / "models/tiny@2")
    manifest = brought / "models/tiny@2/manifest.toml"
    manifest.write_text(manifest.read_text().replace('version = "1"', 'version = "2"'))
    hilum(brought, "models", "build", "tiny@2")
    said = hilum(brought, "models", "check", "tiny@2", "--run", status=1, HILUM_TRITON__URL=served)
    assert "the canary: " in said
    assert "is not loaded in the Triton" in said
    assert "load tiny__2 or restart that Triton" in said


def test_a_triton_that_is_away_is_a_problem(brought: Path) -> None:
    assert "did not answer" in hilum(
        brought, "models", "check", "--run", status=1, HILUM_TRITON__URL="127.0.0.1:1"
    )
