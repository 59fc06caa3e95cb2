"""Export of our networks to ONNX, the artefact of record, and the proof of parity with torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch

from hilum.errors import ConfigurationError
from hilum.models.formats.triton_model import open_engine
from hilum.models.known_answers import canary
from hilum.models.manifest.manifest import Manifest
from hilum.models.networks import architectures, state_dict, untrained
from hilum.models.onnx import contract, pool_before_conv

PARITY: Final = 1e-4
"""Largest difference between torch's logits and ONNX Runtime's, both float32."""
CAM_PARITY: Final = 2e-3
"""The same for maps, relative to the largest value: they are fp16, whose step is 1e-3."""
_BATCHES: Final = (1, 5)
_OPSET: Final = 20  # pinned: another default of torch must not change the artefact
_LARGEST_BATCH: Final = 64


def export(manifest: Manifest, weights: Path | None, destination: Path) -> None:
    """Write `destination`: the release's network with its normalisation, for any batch size.

    `image` → `logits` (and `cam`). `weights` None: untrained, from the manifest's seed.

    Raises ConfigurationError when weights do not fit or parity fails.
    """
    served = _served(manifest, weights)
    _write(served, _images(manifest, 2), manifest.release.has_cam, destination)
    _pool_early(destination)
    _require_contract(manifest, destination)
    _require_parity(manifest, served, destination)


def export_as_torch_does(manifest: Manifest, destination: Path) -> None:
    """Write the same network from the manifest's seed with torch's exporter alone.

    It is there to compare with.
    """
    _write(_served(manifest, None), _images(manifest, 2), manifest.release.has_cam, destination)


def network(manifest: Manifest, weights: Path | None) -> torch.nn.Module:
    """Return the network with its weights, in evaluation mode.

    Raises ConfigurationError when they do not fit.
    """
    release = manifest.release
    spec = manifest.spec
    options = manifest.table.model.options
    if weights is None:
        assert manifest.weights.seed is not None
        made = architectures.make(release.architecture, spec, len(release.labels), options)
        untrained.fill(made, spec, manifest.weights.seed)
        return made
    tensors = state_dict.read(weights, release.architecture)
    made = architectures.make(release.architecture, spec, len(release.labels), options, tensors)
    state_dict.load_into(made, tensors, weights.name)
    return made


def _served(manifest: Manifest, weights: Path | None) -> architectures.ServedNetwork:
    return architectures.ServedNetwork(
        network(manifest, weights), manifest.spec, manifest.release.has_cam
    ).eval()


def _pool_early(path: Path) -> None:
    model = onnx.load(path)
    if pool_before_conv.pooled_early(model.graph):
        onnx.save(model, path)


def _images(manifest: Manifest, count: int) -> torch.Tensor:
    return torch.cat(
        [torch.from_numpy(canary.known_image(manifest.spec, number)) for number in range(count)]
    )


def _write(
    served: architectures.ServedNetwork, example: torch.Tensor, has_cam: bool, destination: Path
) -> None:
    batch = torch.export.Dim("batch", min=1, max=_LARGEST_BATCH)
    with _quiet():
        torch.onnx.export(
            served,
            (example,),
            destination,
            dynamo=True,
            dynamic_shapes=({0: batch},),
            input_names=["image"],
            output_names=["logits", "cam"] if has_cam else ["logits"],
            external_data=False,
            verbose=False,
            opset_version=_OPSET,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings of its own future versions and of torchvision.

    torchvision is not needed.
    """
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        noisy.setLevel(level)


def _require_contract(manifest: Manifest, artefact: Path) -> None:
    model = onnx.load(artefact)
    onnx.checker.check_model(model)
    if problems := list(contract.problems(model, manifest)):
        raise ConfigurationError([f"{manifest.release.id}: {problem}" for problem in problems])


def _require_parity(
    manifest: Manifest, served: architectures.ServedNetwork, artefact: Path
) -> None:
    for size in _BATCHES:
        for name, (worst, allowed) in _differences(
            served, artefact, _images(manifest, size)
        ).items():
            if not worst <= allowed:
                problem = (
                    f"{name} of ONNX differ from torch's by {worst:.2g} at batch {size};"
                    f" {allowed:g} is allowed"
                )
                raise ConfigurationError(
                    [
                        (
                            f"{manifest.release.id}: {problem}; another version of torch or"
                            " onnxscript may help"
                        )
                    ]
                )


def _differences(
    served: architectures.ServedNetwork, artefact: Path, images: torch.Tensor
) -> dict[str, tuple[float, float]]:
    """Return each output's largest difference from torch on these images, and the limit.

    Torch and ONNX Runtime both compute in float32.
    """
    with torch.no_grad():
        logits, *maps = [output.numpy() for output in served(images)]
    theirs = open_engine(artefact, "onnxruntime", "f32", "all")(images.numpy())
    found = {"logits": (_apart(theirs["logits"], logits), PARITY)}
    for cam in maps:
        wide = cam.astype(np.float32)
        largest = max(1.0, float(np.abs(wide).max()))
        found["cam"] = (_apart(theirs["cam"].astype(np.float32), wide), CAM_PARITY * largest)
    return found


def _apart(one: canary.Array, other: canary.Array) -> float:
    return float(np.abs(one - other).max())
