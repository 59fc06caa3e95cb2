"""The families of checkpoints that can be imported.

Each turns tensors by their authors' names into a draft of the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from hilum.errors import ConfigurationError
from hilum.models.importing import outputs, published
from hilum.models.importing.clip_checkpoint import chexzero
from hilum.models.importing.draft import ImportedDraft
from hilum.models.importing.request import ImportRequest, Tensors, recipe_lines, size_of
from hilum.models.importing.vit_checkpoint import vit
from hilum.models.networks import checkpoint_names
from hilum.toml import quoted

__all__ = ["KINDS", "ImportRequest"]


def densenet121(request: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of a DenseNet-121 with torchvision's names (the CheXNet family)."""
    return _convolutional(
        "densenet121", "features.conv0.weight", "classifier.weight", request, given
    )


def resnet50(request: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of a ResNet-50 with torchvision's names."""
    return _convolutional("resnet50", "conv1.weight", "fc.weight", request, given)


def _convolutional(
    architecture: str, first: str, head: str, request: ImportRequest, given: Tensors
) -> ImportedDraft:
    tensors = checkpoint_names.canonical(architecture, given)
    channels = size_of(tensors, first, 1)
    count = size_of(tensors, head, 0)
    if request.recipe is None and channels != 3:
        raise ConfigurationError(
            [
                (
                    f"the network takes {channels} channel: say with --recipe how its images were"
                    " prepared"
                )
            ]
        )
    return ImportedDraft(
        tensors=tensors,
        architecture=architecture,
        activation=request.activation or "sigmoid",
        label_lines=list(outputs.lines(outputs.names(request.labels, (), count), None)),
        input_lines=recipe_lines(request.recipe or "chexnet_nih_256_224"),
        manufacturer="unknown",
        licence="unknown",
        source=f"{request.source.name}, a checkpoint of {architecture} with torchvision's names",
        remarks=(
            "EDIT activation below, if the network was not trained with a sigmoid for each output.",
            (
                "EDIT: ReLU inside is a guess. With another activation (ELU, in some of LibAUC's"
                " networks) the tensors are the same, and all scores would be wrong: refuse it."
            ),
        ),
    )


def torchxrayvision(request: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of one of torchxrayvision's releases.

    Label order, untrained outputs and operating points are known.
    """
    release = published.named(request.published, request.source)
    tensors = checkpoint_names.canonical(release.architecture, given)
    _require_outputs(request, release, tensors)
    return ImportedDraft(
        tensors=tensors,
        architecture=release.architecture,
        activation="sigmoid",
        label_lines=list(outputs.lines(release.labels, _thresholds(release, given))),
        input_lines=recipe_lines(release.recipe),
        manufacturer="torchxrayvision (public library)",
        licence=(
            "Apache-2.0 for the library; the weights carry the terms of the data sets that they"
            " were trained on"
        ),
        source=release.address,
        citation=(
            "Cohen et al., TorchXRayVision: A library of chest X-ray datasets and models, MIDL 2022"
        ),
        operating_points={
            "measured_on": quoted(f"a fifth, held out by its authors, of {release.trained_on}"),
            "criterion": quoted(
                "Youden's J on the sigmoid of the logit; scores are bent so that it becomes 0.5"
                " (torchxrayvision's op_norm)"
            ),
        },
        remarks=(f"{release.name} of torchxrayvision.",),
    )


def _require_outputs(
    request: ImportRequest, release: published.Published, tensors: Tensors
) -> None:
    head = "classifier.weight" if release.architecture == "densenet121" else "fc.weight"
    count = size_of(tensors, head, 0)
    if count != len(release.labels):
        problem = f"{release.name} has {len(release.labels)}: another file"
        raise ConfigurationError([f"{request.source.name} has {count} outputs, {problem}"])


def _thresholds(release: published.Published, given: Tensors) -> tuple[float, ...]:
    """Return the published thresholds.

    Raises ConfigurationError where the file has other ones. They are float32 there.
    """
    theirs = torch.tensor(release.thresholds, dtype=torch.float32)
    own = _own_thresholds(given)
    if own is not None and (
        own.shape != theirs.shape
        or not torch.allclose(own.float(), theirs, rtol=1e-5, atol=0, equal_nan=True)
    ):
        problem = "another release, or trained on; give --published"
        raise ConfigurationError(
            [f"the file's op_threshs are not those of {release.name}: {problem}"]
        )
    return release.thresholds


def _own_thresholds(given: Tensors) -> torch.Tensor | None:
    for name, tensor in given.items():
        if name.endswith("op_threshs") and tensor.numel():
            return tensor if tensor.isfinite().any() else None
    return None


KINDS: Final[Mapping[str, Callable[[ImportRequest, Tensors], ImportedDraft]]] = {
    "chexzero": chexzero,
    "densenet121": densenet121,
    "resnet50": resnet50,
    "torchxrayvision": torchxrayvision,
    "vit": vit,
}
