"""The releases of this repository through the real tritonserver.

The numbers that come out are those that should.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilum.analyse.inference.answers import InferenceResult
from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.known_answers import canary
from hilum.models.manifest import catalogue
from hilum.models.manifest.manifest import Manifest
from hilum.triton.server import EmbeddedTriton
from tests.support.models.releases import MANIFESTS, build_cached
from tests.support.models.triton import killed_afterwards, require_triton

Array = np.ndarray[Any, np.dtype[Any]]
pytestmark = pytest.mark.timeout(600)  # the first run of a machine builds two large networks
STEP = 0.27914  # of the quantised output of mobilenetv3_nih15_int8
DENSENET = "densenet121_untrained@1"
NIH = "mobilenetv3_nih15_int8@1"


def _manifest(release_id: str) -> Manifest:
    return catalogue.load_manifests(MANIFESTS)[release_id]


def _served(folder: Path, state: Path, release: Release) -> EmbeddedTriton:
    require_triton()
    return EmbeddedTriton(
        folder, state, [release.triton_name], start_timeout_seconds=120, exit_timeout_seconds=5
    )


def _infer(url: str, release: Release, batches: list[Array]) -> list[InferenceResult]:
    """Two batches in flight, as the analyser sends them."""

    async def run() -> list[InferenceResult]:
        gateway, gate = TritonGateway(url, deadline_seconds=120), asyncio.Semaphore(2)

        async def one(batch: Array) -> InferenceResult:
            async with gate:
                return await gateway.infer(release, batch)

        try:
            return await asyncio.gather(*map(one, batches))
        finally:
            await gateway.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def densenet(
    built_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Manifest]]:
    manifest = _manifest(DENSENET)
    with killed_afterwards(
        _served(built_models, tmp_path_factory.mktemp("state"), manifest.release)
    ) as server:
        yield server.start(), manifest


def test_densenet_gives_its_canary_and_the_same_numbers_in_any_batch(
    densenet: tuple[str, Manifest], built_models: Path
) -> None:
    url, manifest = densenet
    known = canary.read_canary(manifest.release, built_models)
    images = np.concatenate([canary.known_image(manifest.spec, number) for number in range(5)])
    together, first, rest = _infer(url, manifest.release, [images, images[:1], images[1:]])
    assert np.abs(first.logits - known.logits).max() < known.tolerance
    assert np.abs(together.logits - np.concatenate([first.logits, rest.logits])).max() < 1e-3


def test_the_mean_of_a_class_activation_map_is_its_logit(densenet: tuple[str, Manifest]) -> None:
    url, manifest = densenet
    images = np.concatenate([canary.known_image(manifest.spec, number) for number in range(3)])
    (inference,) = _infer(url, manifest.release, [images])
    assert inference.cam is not None
    assert (inference.cam.shape, inference.cam.dtype) == ((3, 14, 7, 7), np.float16)
    # The untrained head has no bias; float16 keeps three digits of a map.
    assert np.abs(inference.cam.astype(np.float32).mean((2, 3)) - inference.logits).max() < 5e-3


def test_an_untrained_release_tells_phantoms_apart_with_moderate_logits(
    densenet: tuple[str, Manifest],
) -> None:
    from testing.phantoms.phantom import make_study

    url, manifest = densenet
    tensors = [
        _prepared(dataset, manifest)
        for seed in range(3)
        for dataset in make_study(seed=seed, views=("PA",))
    ]
    (inference,) = _infer(url, manifest.release, [np.stack(tensors)])
    assert np.abs(inference.logits).max() < 30
    assert np.ptp(inference.logits, axis=0).max() > 0.05


def _prepared(dataset: Any, manifest: Manifest) -> Array:
    from hilum_preprocessing.prepare import prepare

    tensor: Array = prepare(dataset, manifest.spec).tensor.numpy()
    return tensor


@pytest.mark.slow
def test_vit_is_built_and_its_engines_agree() -> None:
    """Building compares ONNX with torch at two batch sizes.

    Here the two engines meet on images that the build did not use.
    """
    from hilum.models.formats import triton_model

    manifest = _manifest("vit_b16_untrained@1")
    built = build_cached(manifest.release.id)
    assert build.is_built(manifest.release, built)
    images = np.concatenate([canary.known_image(manifest.spec, number) for number in (20, 21)])
    artefact = build.tree_of(manifest.release, built) / "1/model.onnx"
    ours, theirs = (
        triton_model.open_engine(artefact, name, "f32", "all")(images)["logits"]
        for name in ("openvino", "onnxruntime")
    )
    assert np.abs(ours - theirs).max() < 2e-3
    assert np.abs(ours[0] - ours[1]).max() > 0.05


def test_an_artefact_that_differs_from_torch_is_refused(built_models: Path) -> None:
    from hilum.models.build import export
    from hilum.models.networks import architectures

    manifest = _manifest(DENSENET)
    other = architectures.ServedNetwork(
        architectures.make("densenet121", manifest.spec, 14), manifest.spec
    ).eval()
    with pytest.raises(ConfigurationError, match="logits of ONNX differ from torch's by"):
        export._require_parity(
            manifest, other, build.tree_of(manifest.release, built_models) / "1/model.onnx"
        )


# The real int8 release on real radiographs
# ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nih(
    test_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Manifest]]:
    manifest = _manifest(NIH)
    built = build_cached(NIH, weights_dir=test_data / "models")
    with killed_afterwards(
        _served(built, tmp_path_factory.mktemp("state"), manifest.release)
    ) as server:
        yield server.start(), manifest


@pytest.fixture(scope="module")
def reference(test_data: Path) -> list[dict[str, str]]:
    text = (test_data / "expected/mobilenetv3_int8_reference.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def answers(nih: tuple[str, Manifest], reference: list[dict[str, str]], test_data: Path) -> Array:
    """(70, 15) logits of the reference inputs, whose tensors are those of Pillow to the bit."""
    url, manifest = nih
    images = []
    for row in reference:
        picture = _pillow_224(test_data / row["input"])
        tensor = ((picture.astype(np.float32) / 255 - 0.485) / 0.229)[None, None]
        assert (
            hashlib.sha256(tensor.astype(np.float32).tobytes()).hexdigest()
            == row["input_tensor_sha256"]
        ), row["input"]
        images.append(picture[None])
    stacked = np.stack(images)
    batches = [
        stacked[i : i + manifest.release.max_batch]
        for i in range(0, len(stacked), manifest.release.max_batch)
    ]
    return np.concatenate(
        [inference.logits for inference in _infer(url, manifest.release, batches)]
    )


def _pillow_224(path: Path) -> Array:
    """(224, 224) uint8, as the model's authors prepare a picture."""
    from PIL import Image

    return np.asarray(_picture(path).convert("L").resize((224, 224), Image.Resampling.BICUBIC))


def _picture(path: Path) -> Any:
    from PIL import Image
    from pydicom import dcmread
    from pydicom.pixels import pixel_array

    if path.suffix != ".dcm":
        return Image.open(path)
    dataset = dcmread(path)
    pixels = pixel_array(dataset)
    return Image.fromarray(
        255 - pixels if dataset.PhotometricInterpretation == "MONOCHROME1" else pixels
    )


def _columns(rows: list[dict[str, str]], prefix: str) -> Array:
    names = [name for name in rows[0] if name.startswith(prefix)]
    return np.array([[float(row[name]) for name in names] for row in rows], np.float32)


def test_the_recorded_logits_come_back(answers: Array, reference: list[dict[str, str]]) -> None:
    """Without graph optimisation, which is what the release pins.

    With it, int8 logits depend on the CPU.
    """
    recorded = _columns(reference, "noopt_logit_")
    within = np.abs(answers - recorded) <= 2 * STEP + 1e-3
    assert answers.shape == (70, 15)
    assert within.mean() >= 0.95, f"{within.mean():.3f}"
    assert (answers.argmax(1) == recorded.argmax(1)).mean() >= 0.95


def test_the_area_under_the_curve_is_that_of_the_reference(
    answers: Array, reference: list[dict[str, str]], test_data: Path
) -> None:
    rows = list(csv.DictReader(io.StringIO((test_data / "labels.csv").read_text(encoding="utf-8"))))
    truth_by_file = {f"nih_png/{row['file']}": row for row in rows}
    names = [name.removeprefix("softmax_") for name in reference[0] if name.startswith("softmax_")]
    used = [i for i, row in enumerate(reference) if row["input"] in truth_by_file]
    truth = np.array(
        [[int(truth_by_file[reference[i]["input"]][name]) for name in names] for i in used]
    )
    recorded = _columns(reference, "noopt_logit_")
    ours, theirs = (_macro_auc(_softmax(logits[used]), truth) for logits in (answers, recorded))
    assert len(used) == 66
    assert abs(ours - theirs) <= 0.01
    # The weak model that its card describes, not noise: chance is 0.5.
    assert 0.6 < ours < 0.7


def _softmax(logits: Array) -> Array:
    grown = np.exp(logits - logits.max(1, keepdims=True))
    shares: Array = grown / grown.sum(1, keepdims=True)
    return shares


def _macro_auc(scores: Array, truth: Array) -> float:
    """Mean over labels of the chance that a positive image scores above a negative one.

    Ties count half.
    """
    areas = []
    for score, label in zip(scores.T, truth.T, strict=True):
        apart = score[label == 1][:, None] - score[label == 0][None, :]
        areas.append(float(((apart > 0) + 0.5 * (apart == 0)).mean()))
    return float(np.mean(areas))


def test_labels_and_outputs_stand_in_one_order(
    nih: tuple[str, Manifest], reference: list[dict[str, str]]
) -> None:
    words = {"Effusion": "pleural_effusion", "Hernia": "hiatal_hernia"}
    names = [name.removeprefix("softmax_") for name in reference[0] if name.startswith("softmax_")]
    expected = [words.get(name, name.lower().replace(" ", "_")) for name in names]
    assert [label.key for label in nih[1].release.labels] == expected


def test_the_real_release_passes_its_canary(nih: tuple[str, Manifest]) -> None:
    url, manifest = nih
    known = canary.read_canary(
        manifest.release,
        build_cached(NIH, weights_dir=Path(os.environ["HILUM_TEST_DATA"]) / "models"),
    )
    (inference,) = _infer(url, manifest.release, [known.image])
    assert np.abs(inference.logits - known.logits).max() <= known.tolerance
