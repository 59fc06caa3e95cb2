"""A stranger's checkpoint, a pickle, through import and build to the real tritonserver.

Its own numbers, and maps that add up to them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch

from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Release
from hilum.models.build import build
from hilum.models.importing import release_folder
from hilum.models.importing.kinds import ImportRequest
from hilum.models.known_answers import canary
from hilum.models.manifest import manifest
from hilum.models.networks.vit import VisionTransformer, VitShape
from hilum.triton.server import EmbeddedTriton
from hilum_preprocessing.spec.input_spec import InputSpec
from tests.support.models.checkpoints import randomised, vit_forward
from tests.support.models.triton import killed_afterwards, require_triton, with_gateway

T = TypeVar("T")
SHAPE = VitShape(64, 2, 1, 128, 8, 17, "gap", "tokens", 1e-6, has_class_token=True)
TIMM = {
    "global_pool": "avg",
    "pretrained_cfg": {
        "input_size": [3, 32, 32],
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
        "interpolation": "bilinear",
    },
}


@dataclass(frozen=True)
class Rig:
    """The release in a running Triton, and the network as its author had it."""

    url: str
    release: Release
    spec: InputSpec
    built_dir: Path
    network: VisionTransformer

    def run(self, use: Callable[[TritonGateway], Awaitable[T]]) -> T:
        return with_gateway(self.url, use)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    require_triton()
    folder = tmp_path_factory.mktemp("brought")
    network = VisionTransformer(SHAPE, 3, 3, 32, 32)
    randomised(network)
    torch.save(
        {
            "epoch": 9,
            "state_dict": {f"module.{name}": value for name, value in network.state_dict().items()},
        },
        folder / "best.ckpt",
    )
    (folder / "config.json").write_text(json.dumps(TIMM))
    (folder / "labels.txt").write_text("Effusion\nPneumothorax\nEdema")
    made = release_folder.import_release(
        "vit",
        ImportRequest(folder / "best.ckpt", str(folder / "labels.txt")),
        "brought",
        "1",
        folder / "releases",
    )
    build.build(["brought@1"], folder / "releases", folder / "built", progress=lambda _: None)
    read = manifest.read(made.folder / "manifest.toml")
    with killed_afterwards(
        EmbeddedTriton(
            folder / "built", tmp_path_factory.mktemp("state"), [read.release.triton_name], 60, 5
        )
    ) as server:
        yield Rig(server.start(), read.release, read.spec, folder / "built", network)


@pytest.mark.parametrize("size", [1, 5])
def test_triton_gives_the_numbers_of_the_author(rig: Rig, size: int) -> None:
    images = np.concatenate([canary.known_image(rig.spec, number) for number in range(size)])
    inference = rig.run(lambda gateway: gateway.infer(rig.release, images))
    pixels = (torch.from_numpy(images).float().expand(-1, 3, -1, -1) / 255 - 0.5) / 0.25
    expected = vit_forward(pixels, rig.network.state_dict(), 1, 1e-6, "gap").detach().numpy()
    assert np.abs(inference.logits - expected).max() < 1e-4
    assert inference.cam is not None
    assert inference.cam.shape == (size, 3, 4, 4)
    bias = rig.network.head.bias.detach().numpy()
    assert (
        np.abs(inference.cam.astype(np.float32).mean((2, 3)) + bias - inference.logits).max() < 5e-3
    )


def test_what_is_loaded_proves_its_maps_with_its_canary(rig: Rig) -> None:
    known = canary.read_canary(rig.release, rig.built_dir)
    assert known.cam_bias is not None
    assert rig.run(lambda gateway: gateway.check_canary(rig.release, known)) is None
    other = dataclasses.replace(known, cam_bias=known.cam_bias + np.array([0, 0.1, 0], np.float32))
    verdict = rig.run(lambda gateway: gateway.check_canary(rig.release, other))
    assert verdict is not None
    assert "mean of the map + bias differs from logit 1 by 0.1" in verdict
