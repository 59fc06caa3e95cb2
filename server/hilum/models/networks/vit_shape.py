"""Sizes of a vision transformer.

They come from its tensors by timm's names, or from the manifest where it is untrained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from torch import Tensor

from hilum.errors import ConfigurationError
from hilum.models.manifest.tables import OptionsTable
from hilum.models.networks.vit import VitShape
from hilum_preprocessing.spec.input_spec import InputSpec

HEAD_WIDTH: Final = 64
# Axes of the tensors from which sizes are read.
_NEEDED: Final = {
    "patch_embed.proj.weight": 4,
    "pos_embed": 3,
    "blocks.0.norm1.weight": 1,
    "blocks.0.mlp.fc1.weight": 2,
}


def from_tensors(tensors: Mapping[str, Tensor], options: OptionsTable, spec: InputSpec) -> VitShape:
    """Return the sizes of these tensors.

    Raises ConfigurationError where the manifest has others, or the network was trained for another
    size of input.
    """
    if lacking := missing(tensors):
        raise ConfigurationError(
            [f"no vision transformer of timm or Hugging Face: it lacks {', '.join(lacking)}"]
        )
    width, _, patch, _ = tensors["patch_embed.proj.weight"].shape
    shape = VitShape(
        width=width,
        layers=layers(tensors),
        heads=options.heads or max(1, width // HEAD_WIDTH),
        hidden=tensors["blocks.0.mlp.fc1.weight"].shape[0],
        patch=patch,
        positions=tensors["pos_embed"].shape[1],
        pooling=options.pooling,
        norm="pooled" if "fc_norm.weight" in tensors else "tokens",
        epsilon=options.epsilon,
        has_class_token="cls_token" in tensors,
    )
    if problems := list(_misfits(shape, options, spec)):
        raise ConfigurationError([f"model.options: {problem}" for problem in problems])
    return shape


def missing(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the tensors that give the sizes and are absent or have another number of axes."""
    return [
        f"{name} with {axes} axes"
        for name, axes in _NEEDED.items()
        if name not in tensors or tensors[name].dim() != axes
    ]


def untrained(options: OptionsTable, spec: InputSpec) -> VitShape:
    """Return the sizes in the manifest.

    A layer is four times as wide inside. There is a class token where the head reads it.
    """
    has_class_token = options.pooling == "cls"
    return VitShape(
        width=options.width,
        layers=options.layers,
        heads=options.heads or max(1, options.width // HEAD_WIDTH),
        hidden=4 * options.width,
        patch=options.patch,
        positions=_patches(options.patch, spec) + has_class_token,
        pooling=options.pooling,
        norm=options.norm,
        epsilon=options.epsilon,
        has_class_token=has_class_token,
    )


def b16(spec: InputSpec) -> VitShape:
    """ViT-B/16 of the paper, with a class token, as torchvision has it."""
    return VitShape(
        width=768,
        layers=12,
        heads=12,
        hidden=3072,
        patch=16,
        positions=_patches(16, spec) + 1,
        pooling="cls",
        norm="tokens",
        epsilon=1e-6,
        has_class_token=True,
    )


def layers(tensors: Mapping[str, Tensor]) -> int:
    """Return the number of blocks."""
    return len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})


def _patches(patch: int, spec: InputSpec) -> int:
    _, height, width = spec.wire_shape
    return (height // patch) * (width // patch)


def _misfits(shape: VitShape, options: OptionsTable, spec: InputSpec) -> Iterator[str]:
    if shape.patch != options.patch:
        yield f"patch is {options.patch}, the patches of these weights are {shape.patch}"
    if shape.norm != options.norm:
        yield f"norm is {options.norm}, these weights have theirs over {shape.norm}"
    if shape.width % shape.heads:
        yield f"{shape.heads} heads do not divide the width {shape.width}"
    if shape.pooling == "cls" and not shape.has_class_token:
        yield "pooling is cls, these weights have no class token"
    patches = _patches(shape.patch, spec)
    if shape.positions not in (patches, patches + shape.has_class_token):
        size = "x".join(map(str, spec.wire_shape[1:]))
        yield (
            f"the input of {size} makes {patches} patches, the weights have places for"
            f" {shape.positions}: trained at another size"
        )
