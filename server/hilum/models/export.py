"""Networks of ours to ONNX, the artefact of record, and the proof that it says what torch says."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import torch

from hilum.errors import ConfigurationError
from hilum.models import architectures, canary, state_dict, untrained
from hilum.models.embedded_model import open_engine
from hilum.models.manifest import Manifest

PARITY: Final = 1e-4
"""Largest difference between torch's logits and ONNX Runtime's, both float32."""
_BATCHES: Final = (1, 5)
_LARGEST_BATCH: Final = 64


def export(manifest: Manifest, weights: Path | None, destination: Path) -> None:
    """Write `destination`: the release's network with its normalisation, `image` → `logits` (and `cam`), any batch size.

    `weights` None: untrained, from the manifest's seed. Raises ConfigurationError when weights do not fit or parity fails.
    """
    release, spec = manifest.release, manifest.spec
    network = architectures.make(release.architecture, spec, len(release.labels))
    if weights is None:
        assert manifest.weights.seed is not None
        untrained.fill(network, spec, manifest.weights.seed)
    else:
        state_dict.load_into(network, weights)
    served = architectures.Served(network, spec).eval()
    _write(served, _images(manifest, 2), release.has_cam, destination)
    _require_parity(manifest, served, destination)


def _images(manifest: Manifest, count: int) -> torch.Tensor:
    return torch.cat([torch.from_numpy(canary.known_image(manifest.spec, number)) for number in range(count)])


def _write(served: architectures.Served, example: torch.Tensor, has_cam: bool, destination: Path) -> None:
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
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's words about its own future versions and about torchvision, which is not needed."""
    noisy = logging.getLogger("torch.onnx")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        noisy.setLevel(level)


def _require_parity(manifest: Manifest, served: architectures.Served, artefact: Path) -> None:
    run = open_engine(artefact, "onnxruntime", "f32", "all")
    for size in _BATCHES:
        images = _images(manifest, size)
        with torch.no_grad():
            ours = served(images)[0].numpy()
        worst = float(np.abs(run(images.numpy())["logits"] - ours).max())
        if not worst <= PARITY:
            problem = f"ONNX differs from torch by {worst:.2g} at batch {size}; {PARITY:g} is allowed"
            raise ConfigurationError([f"{manifest.release.id}: {problem}; another version of torch or onnxscript may help"])
