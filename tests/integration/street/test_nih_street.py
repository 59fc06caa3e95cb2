"""A real trained model on real radiographs through the whole street, beside an untrained one that no clinic must see.

The images are NIH's, sent as Secondary Capture with Modality CR; the recorded logits are those of
ONNX Runtime without graph optimisation, which is what the release pins.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom import Dataset

from testing.phantoms import phantom
from testing.serving import Hilum
from tests.support.models.releases import build_cached
from tests.support.server.installation import START_SECONDS, save_all, send_to, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # it may have to build two releases first
TRAINED, UNTRAINED = "mobilenetv3_nih15_int8@1", "densenet121_untrained@1"
STEP = 0.27914  # one quantisation step of the model's output


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, test_data: Path) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("nih")
    built = build_cached(TRAINED, UNTRAINED, weights_dir=test_data / "models")
    destinations = {
        "clinic": {"kind": "folder", "path": str(folder / "clinic")},
        "lab": {
            "kind": "folder",
            "path": str(folder / "lab"),
            "documents": ["sr", "json"],
            "accept_untrained": True,
        },
    }
    running = Hilum(
        folder,
        destinations,
        models={"built": str(built), "releases": [TRAINED, UNTRAINED]},
        studies={"quiet_seconds": 1.0},
    )
    running.write_settings()
    with running:
        running.wait_until_ready(START_SECONDS)
        yield running


def as_dicom(png: Path, number: int) -> Dataset:
    """A Secondary Capture object with the PNG's grey values, as the NIH images came from the authors' `convert("L")`."""
    pixels = np.asarray(Image.open(png).convert("L"))
    dataset = phantom.make_instance(seed=50_000 + number, modality="SC", rows=16, columns=16)
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.PixelData = pixels.tobytes()
    for keyword in ("WindowCenter", "WindowWidth"):
        if keyword in dataset:
            delattr(dataset, keyword)
    return dataset


@pytest.fixture(scope="module")
def studies(
    server: Hilum, test_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """File name to everything that REST says about its study."""
    files = sorted((test_data / "nih_png").glob("*.png"))
    images = {file.name: as_dicom(file, number) for number, file in enumerate(files)}
    assert send_to(server, save_all(tmp_path_factory.mktemp("sent"), list(images.values()))).is_ok
    uids = {name: str(image.StudyInstanceUID) for name, image in images.items()}
    # the lab has the reports of both releases; those of one may come long after the other's
    for folder, count in (("clinic", len(uids)), ("lab", 2 * len(uids))):
        wait_for(
            lambda folder=folder, count=count: _reported(server, folder) >= count,
            seconds=240,
            what=f"all reports in {folder}",
        )
    return {name: server.get(f"/api/v1/studies/{uid}").json() for name, uid in uids.items()}


def _reported(server: Hilum, folder: str) -> int:
    return len(list((server.folder / folder).glob("*.dcm")))


def reference(test_data: Path) -> dict[str, dict[str, str]]:
    with (test_data / "expected/mobilenetv3_int8_reference.csv").open() as file:
        return {Path(row["input"]).name: row for row in csv.DictReader(file)}


def logits_of(study: dict[str, Any], release: str) -> list[float]:
    (reading,) = [item for item in study["images"][0]["readings"] if item["release"] == release]
    assert reading["state"] == "analysed", reading
    found: list[float] = reading["logits"]
    return found


def test_logits_are_the_recorded_ones(studies: dict[str, dict[str, Any]], test_data: Path) -> None:
    expected = reference(test_data)
    names = [
        name.removeprefix("noopt_logit_")
        for name in next(iter(expected.values()))
        if name.startswith("noopt_logit_")
    ]
    differences = [
        abs(ours - float(expected[file][f"noopt_logit_{name}"]))
        for file, study in studies.items()
        for name, ours in zip(names, logits_of(study, TRAINED), strict=True)
    ]
    assert len(differences) == 66 * 15
    assert float(np.mean(np.array(differences) <= 2 * STEP)) >= 0.95


def test_auc_is_that_of_the_recorded_scores(
    studies: dict[str, dict[str, Any]], test_data: Path
) -> None:
    expected = reference(test_data)
    names = [
        name.removeprefix("noopt_logit_")
        for name in next(iter(expected.values()))
        if name.startswith("noopt_logit_")
    ]
    with (test_data / "labels.csv").open() as file:
        labels = {Path(row["file"]).name: row for row in csv.DictReader(file)}
    ours, theirs = [], []
    for position, name in enumerate(names):
        truth = np.array([float(labels[file][name]) > 0 for file in studies])
        ours.append(
            _auc(
                truth,
                np.array(
                    [_softmax(logits_of(study, TRAINED))[position] for study in studies.values()]
                ),
            )
        )
        recorded = [
            _softmax([float(expected[file][f"noopt_logit_{other}"]) for other in names])[position]
            for file in studies
        ]
        theirs.append(_auc(truth, np.array(recorded)))
    assert abs(float(np.mean(ours)) - float(np.mean(theirs))) <= 0.01
    assert float(np.mean(ours)) > 0.6, "the model is weak, but no coin"


def _softmax(logits: list[float]) -> np.ndarray[Any, Any]:
    powers = np.exp(np.array(logits) - max(logits))
    return np.asarray(powers / powers.sum())


def _auc(truth: np.ndarray[Any, Any], score: np.ndarray[Any, Any]) -> float:
    """Probability that a positive scores higher than a negative, ties half."""
    difference = score[truth][:, None] - score[~truth][None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def test_scores_in_json_are_the_softmax_of_the_logits(studies: dict[str, dict[str, Any]]) -> None:
    for study in studies.values():
        (result,) = [item for item in study["results"] if item["release"] == TRAINED]
        scores = _softmax(logits_of(study, TRAINED))
        assert [finding["score"] for finding in result["findings"]] == pytest.approx(
            list(scores), rel=1e-6, abs=1e-12
        )
        for finding in result["findings"]:
            if finding["operating_point"] is not None:
                wanted = "present" if finding["score"] >= finding["operating_point"] else "absent"
                assert finding["decision"] == wanted
            else:
                assert finding["decision"] == "undecided"


def test_an_image_is_decoded_once_for_both_releases(studies: dict[str, dict[str, Any]]) -> None:
    for study in studies.values():
        first, second = study["images"][0]["readings"]
        assert first["timings"]["decode_seconds"] == second["timings"]["decode_seconds"]


def test_untrained_results_never_reach_a_destination_that_did_not_ask(
    server: Hilum, studies: dict[str, dict[str, Any]]
) -> None:
    assert _reported(server, "lab") == 2 * len(studies)
    clinic = [pydicom.dcmread(file) for file in (server.folder / "clinic").glob("*.dcm")]
    named = [
        {equipment.ManufacturerModelName for equipment in item.ContributingEquipmentSequence}
        for item in clinic
    ]
    assert all(
        TRAINED.partition("@")[0] in names and UNTRAINED.partition("@")[0] not in names
        for names in named
    )
    for study in studies.values():
        (result,) = [item for item in study["results"] if item["release"] == UNTRAINED]
        assert {finding["decision"] for finding in result["findings"]} == {"undecided"}
        deliveries = {
            one["destination"]: one
            for document in result["documents"]
            if document["kind"] == "sr"
            for one in document["deliveries"]
        }
        assert (deliveries["clinic"]["state"], deliveries["clinic"]["reason"]) == (
            "withheld",
            "untrained_weights",
        )
