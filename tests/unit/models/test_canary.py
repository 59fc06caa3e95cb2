"""Known images are the same on every machine, fill the wire's range, and are never constant."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from hilum.errors import ConfigurationError
from hilum.models.known_answers import canary
from hilum.models.manifest import catalogue
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.recipes import RECIPES
from tests.support.models.releases import MANIFESTS

TXV = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
VIT = InputSpec.from_mapping({"recipe": "vit_imagenet_half_224"})


@pytest.mark.parametrize(
    ("spec", "digest"),
    [(TXV, "ddeeb739f0be6df9"), (VIT, "41c1908eed78f47b")],
    ids=["fp16", "uint8"],
)
def test_the_canary_is_the_same_for_ever(spec: InputSpec, digest: str) -> None:
    assert hashlib.sha256(canary.canary_image(spec).tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_known_images_have_the_wire_shape_type_and_range(recipe: str) -> None:
    spec = InputSpec.from_mapping({"recipe": recipe})
    low, high = canary.wire_range(spec)
    for number in range(4):
        image = canary.known_image(spec, number)
        assert image.shape == (1, *spec.wire_shape)
        assert image.dtype == canary.NUMPY_TYPES[spec.wire_dtype]
        assert (float(image.min()), float(image.max())) == (low, high)
        assert len(np.unique(image)) > 100


def test_known_images_differ_from_each_other() -> None:
    images = [canary.known_image(TXV, number).astype(np.float32) for number in range(8)]
    apart = [float(np.abs(a - b).mean()) for i, a in enumerate(images) for b in images[:i]]
    assert min(apart) > 50


def test_reading_a_canary_that_was_not_built_says_what_to_do(tmp_path: Path) -> None:
    release = catalogue.load_catalogue(MANIFESTS)["densenet121_untrained@1"]
    with pytest.raises(
        ConfigurationError,
        match=r"is not built in .*: run `hilum models build densenet121_untrained@1`",
    ):
        canary.read_canary(release, tmp_path)
    record = tmp_path / "onnxruntime" / release.triton_name / "build.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")
    with pytest.raises(ConfigurationError, match="damaged"):
        canary.read_canary(release, tmp_path)
    content = {
        "build_key": "of another manifest",
        "canary": {"logits": [0.5] * 14, "tolerance": 0.1},
    }
    record.write_text(json.dumps(content))
    with pytest.raises(ConfigurationError, match="built from another manifest"):
        canary.read_canary(release, tmp_path)
    for broken in (
        {"logits": [0.5]},
        {"tolerance": 0.1},
        {"logits": "x", "tolerance": 0.1},
        None,
        [1],
    ):
        record.write_text(json.dumps({"build_key": release.build_key, "canary": broken}))
        with pytest.raises(ConfigurationError, match="damaged"):
            canary.read_canary(release, tmp_path)
    record.write_text(json.dumps({"build_key": release.build_key}))
    with pytest.raises(ConfigurationError, match="damaged"):
        canary.read_canary(release, tmp_path)
    record.unlink()
    record.mkdir()
    with pytest.raises(ConfigurationError, match="Is a directory"):
        canary.read_canary(release, tmp_path)
    record.rmdir()
    record.write_text(json.dumps({**content, "build_key": release.build_key}))
    read = canary.read_canary(release, tmp_path)
    assert (read.logits.shape, read.logits.dtype, read.tolerance) == ((1, 14), np.float32, 0.1)
    assert np.array_equal(read.image, canary.canary_image(TXV))
