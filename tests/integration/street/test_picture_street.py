"""Picture files of a research set through the whole street: the numbers of their values, and honest words.

The images are NIH's PNG files as they are, and one of them as JPEG; a real trained model reads them.
A campaign reads labelled ones, and `hilum evaluate` measures the recorded area under the curve.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hilum.retrieve.files.picture_object import picture_object
from hilum_preprocessing.errors import Flag
from testing.serving import Hilum
from tests.support.models.releases import build_cached
from tests.support.objects.picture_files import jpeg_file
from tests.support.server.campaigns import await_end, hilum
from tests.support.server.installation import START_SECONDS, send_to, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # it may have to build a release first
TRAINED = "mobilenetv3_nih15_int8@1"
STEP = 0.27914  # one quantisation step of the model's output
PNG_FILES = ("00000574_000.png", "00001524_000.png", "00000100_000.png")  # the last is RGBA
AS_JPEG = "00001711_000.png"
KNOWN_VIEW = PNG_FILES[1]


def uid(number: int, level: int) -> str:
    return f"1.2.826.0.1.3680043.10.999.{number + 1}.{level}"


def study_uid(name: str) -> str:
    return uid((*PNG_FILES, AS_JPEG).index(name), 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, test_data: Path) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("pictures")
    built = build_cached(TRAINED, weights_dir=test_data / "models")
    running = Hilum(
        folder,
        {"lab": {"kind": "folder", "path": str(folder / "lab"), "documents": ["sr", "json"]}},
        models={"built": str(built), "releases": [TRAINED]},
        studies={"quiet_seconds": 1.0},
    )
    running.write_settings()
    with running:
        running.wait_until_ready(START_SECONDS)
        yield running


@pytest.fixture(scope="module")
def studies(
    server: Hilum, test_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """File name to everything that REST says about its study."""
    folder = tmp_path_factory.mktemp("objects")
    paths = []
    for number, name in enumerate((*PNG_FILES, AS_JPEG)):
        file = test_data / "nih_png" / name
        content = file.read_bytes() if name != AS_JPEG else as_jpeg(file)
        view = "PA" if name == KNOWN_VIEW else ""
        uids = [uid(number, level) for level in (1, 2, 3)]
        paths.append(folder / f"{number}.dcm")
        patient_id = "subject 1" if name == KNOWN_VIEW else ""
        paths[-1].write_bytes(picture_object(content, *uids, view=view, patient_id=patient_id))
    assert send_to(server, paths).is_ok
    wait_for(
        lambda: len(list((server.folder / "lab").glob("*.dcm"))) == len(paths),
        seconds=240,
        what="all studies reported",
    )
    return {
        name: server.get(f"/api/v1/studies/{study_uid(name)}").json()
        for name in (*PNG_FILES, AS_JPEG)
    }


def as_jpeg(file: Path) -> bytes:
    return jpeg_file(np.asarray(Image.open(file).convert("L")))


def reading_of(study: dict[str, Any]) -> dict[str, Any]:
    (reading,) = study["images"][0]["readings"]
    assert reading["state"] == "analysed", reading
    found: dict[str, Any] = reading
    return found


def recorded(test_data: Path, name: str) -> list[float]:
    with (test_data / "expected/mobilenetv3_int8_reference.csv").open() as file:
        (row,) = [row for row in csv.DictReader(file) if Path(row["input"]).name == name]
    return [float(value) for key, value in row.items() if key.startswith("noopt_logit_")]


@pytest.mark.parametrize("name", PNG_FILES)
def test_a_png_file_has_the_recorded_logits(
    studies: dict[str, dict[str, Any]], test_data: Path, name: str
) -> None:
    logits = reading_of(studies[name])["logits"]
    assert logits == pytest.approx(recorded(test_data, name), abs=2 * STEP)


def test_a_jpeg_file_has_about_the_recorded_logits(
    studies: dict[str, dict[str, Any]], test_data: Path
) -> None:
    """The loss of JPEG moves an 8-bit model by some steps."""
    apart = np.subtract(reading_of(studies[AS_JPEG])["logits"], recorded(test_data, AS_JPEG))
    assert float(np.abs(apart).mean()) <= 4 * STEP


@pytest.mark.parametrize("name", [*PNG_FILES, AS_JPEG])
def test_a_result_says_what_the_file_does_not_state(
    studies: dict[str, dict[str, Any]], name: str
) -> None:
    flags = set(studies[name]["results"][0]["source_images"][0]["flags"])
    expected = {"picture_file", "body_part_unknown"}
    expected |= set() if name == KNOWN_VIEW else {"view_unknown"}
    assert flags == expected | ({"lossy_compressed"} if name == AS_JPEG else set())


def test_the_report_says_it_in_words(server: Hilum, studies: dict[str, dict[str, Any]]) -> None:
    reports = [file.read_bytes() for file in (server.folder / "lab").glob("*.dcm")]
    assert len(reports) == len(studies)
    for report in reports:
        assert Flag.PICTURE_FILE.meaning.encode() in report


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory, test_data: Path) -> Path:
    """The labels of each third image."""
    path = tmp_path_factory.mktemp("labels") / "labels.csv"
    header, *rows = (test_data / "labels.csv").read_text().splitlines()
    path.write_text("\n".join([header, *rows[::3]]) + "\n")
    return path


def recorded_area(test_data: Path, labels: Path) -> float:
    """Mean over labels of the area of the recorded outputs, by pairs of images."""
    with labels.open() as file:
        truth = {f"nih_png/{row['file']}": row for row in csv.DictReader(file)}
    with (test_data / "expected/mobilenetv3_int8_reference.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["input"] in truth]
    names = [name for name in rows[0] if name.startswith("noopt_logit_")]
    logits = np.array([[float(row[name]) for name in names] for row in rows])
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    areas = []
    for column, name in enumerate(names):
        label = name.removeprefix("noopt_logit_")
        positive = np.array([truth[row["input"]][label] == "1" for row in rows])
        if not positive.any():
            continue
        apart = scores[positive, column][:, None] - scores[~positive, column][None, :]
        areas.append(((apart > 0) + 0.5 * (apart == 0)).mean())
    return float(np.mean(areas))


def test_the_printed_commands_measure_the_recorded_area(
    server: Hilum, test_data: Path, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the list of pictures is written here
    said = hilum(
        server,
        *("evaluate", "labels", "--labels", str(labels), "--key", "file"),
        *("--patient", "nih_patient_id", "--images", str(test_data / "nih_png")),
        *("--release", TRAINED),
    )
    assert said.startswith(f"22 of 22 labelled images are in {test_data / 'nih_png'}\n")
    plan, run, _, evaluate = re.findall(r"^hilum (.+)$", said, re.MULTILINE)
    hilum(server, *shlex.split(plan))
    hilum(server, *shlex.split(run))
    await_end(server, shlex.split(plan)[2], 240)
    hilum(server, *shlex.split(evaluate), "--out", "found.json", "--bootstrap", "100")

    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    assert found["counts"]["images"] == 22
    assert found["counts"]["patients"] == 22
    assert found["counts"]["labelled_without_score"] == 0
    assert found["release"]["name"] == TRAINED
    assert found["release"]["weights_sha256"].startswith("1ed18d0d")
    # one step of the int8 network changes the order of some images, by the CPU
    assert found["mean"]["auroc"]["value"] == pytest.approx(
        recorded_area(test_data, labels), abs=0.02
    )
    assert {each["of"] for each in found["classes"][1]["thresholds"]} == {
        "manifest",
        "0.5",
        "youden",
    }
