"""The families of checkpoints that can be imported.

Each turns tensors by their authors' names into a draft of the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from hilum.errors import ConfigurationError
from hilum.models.formats.toml import quoted
from hilum.models.importing import outputs, published
from hilum.models.importing.asked import ImportRequest, Tensors, recipe_lines, size_of
from hilum.models.importing.draft import ImportedDraft
from hilum.models.importing.vit_checkpoint import vit
from hilum.models.networks import checkpoint_names

__all__ = ["KINDS", "ImportRequest"]


def densenet121(asked: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of a DenseNet-121 with torchvision's names (the CheXNet family)."""
    return _convolutional("densenet121", "features.conv0.weight", "classifier.weight", asked, given)


def resnet50(asked: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of a ResNet-50 with torchvision's names."""
    return _convolutional("resnet50", "conv1.weight", "fc.weight", asked, given)


def _convolutional(
    architecture: str, first: str, head: str, asked: ImportRequest, given: Tensors
) -> ImportedDraft:
    tensors = checkpoint_names.canonical(architecture, given)
    channels = size_of(tensors, first, 1)
    count = size_of(tensors, head, 0)
    if asked.recipe is None and channels != 3:
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
        activation=asked.activation or "sigmoid",
        label_lines=list(outputs.lines(outputs.names(asked.labels, (), count), None)),
        input_lines=recipe_lines(asked.recipe or "chexnet_nih_256_224"),
        manufacturer="unknown",
        licence="unknown",
        source=f"{asked.source.name}, a checkpoint of {architecture} with torchvision's names",
        remarks=(
            "EDIT activation below, if the network was not trained with a sigmoid for each output.",
        ),
    )


def torchxrayvision(asked: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of one of torchxrayvision's releases.

    Label order, untrained outputs and operating points are known.
    """
    release = published.named(asked.published, asked.source)
    tensors = checkpoint_names.canonical(release.architecture, given)
    count = size_of(
        tensors, "classifier.weight" if release.architecture == "densenet121" else "fc.weight", 0
    )
    if count != len(release.labels):
        raise ConfigurationError(
            [
                (
                    f"{asked.source.name} has {count} outputs, {release.name} has"
                    f" {len(release.labels)}: another file"
                )
            ]
        )
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


def _thresholds(release: published.Published, given: Tensors) -> tuple[float, ...]:
    """Return the thresholds of the file, if it has any.

    They are float32 there and must be the published ones.
    """
    own = next(
        (
            tensor
            for name, tensor in given.items()
            if name.endswith("op_threshs") and tensor.numel()
        ),
        None,
    )
    if own is None or not own.isfinite().any():
        return release.thresholds
    theirs = torch.tensor(release.thresholds, dtype=torch.float32)
    if own.shape != theirs.shape or not torch.allclose(
        own.float(), theirs, rtol=1e-5, atol=0, equal_nan=True
    ):
        raise ConfigurationError(
            [
                (
                    f"the file's op_threshs are not those of {release.name}: another release, or"
                    " trained on; give --published"
                )
            ]
        )
    return release.thresholds


KINDS: Final[Mapping[str, Callable[[ImportRequest, Tensors], ImportedDraft]]] = {
    "densenet121": densenet121,
    "resnet50": resnet50,
    "torchxrayvision": torchxrayvision,
    "vit": vit,
}
