"""Sizes of CLIP's towers, from tensors with the names of OpenAI's checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from torch import Tensor

from hilum.errors import ConfigurationError
from hilum.models.networks.clip import ClipImageShape, ClipTextShape, ClipTransformerShape
from hilum_preprocessing.spec.input_spec import InputSpec

IMAGE: Final = "visual."
"""Before the names of the image tower; those of the text tower have no prefix."""
_HEAD_WIDTH: Final = 64  # in both towers of every published size
# Axes of the tensors from which sizes are read.
_OF_IMAGES: Final = {
    "visual.conv1.weight": 4,
    "visual.class_embedding": 1,
    "visual.positional_embedding": 2,
    "visual.transformer.resblocks.0.mlp.c_fc.weight": 2,
    "visual.proj": 2,
}
_OF_TEXTS: Final = {
    "token_embedding.weight": 2,
    "positional_embedding": 2,
    "transformer.resblocks.0.mlp.c_fc.weight": 2,
    "text_projection": 2,
}


def image_shape(tensors: Mapping[str, Tensor]) -> ClipImageShape:
    """Return the sizes of the image tower.

    Raises ConfigurationError where tensors that say them are missing.
    """
    _require(tensors, _OF_IMAGES, "no CLIP whose image tower is a vision transformer")
    return ClipImageShape(
        transformer=_transformer(tensors, IMAGE),
        patch=tensors["visual.conv1.weight"].shape[2],
        positions=tensors["visual.positional_embedding"].shape[0],
        embedding=tensors["visual.proj"].shape[1],
    )


def fitting_image_shape(tensors: Mapping[str, Tensor], spec: InputSpec) -> ClipImageShape:
    """Return the sizes of an image tower that takes this input.

    Raises ConfigurationError: tensors are missing, or it was trained at another size.
    """
    shape = image_shape(tensors)
    _, height, width = spec.wire_shape
    places = (height // shape.patch) * (width // shape.patch) + 1
    if height % shape.patch or width % shape.patch or places != shape.positions:
        raise ConfigurationError(
            [
                (
                    f"the input of {height}x{width} makes {places} places with patches of"
                    f" {shape.patch}, the weights have {shape.positions}: trained at another size"
                )
            ]
        )
    return shape


def text_shape(tensors: Mapping[str, Tensor]) -> ClipTextShape:
    """Return the sizes of the text tower.

    Raises ConfigurationError where tensors that say them are missing.
    """
    _require(tensors, _OF_TEXTS, "no text tower of CLIP")
    return ClipTextShape(
        transformer=_transformer(tensors, ""),
        vocabulary=tensors["token_embedding.weight"].shape[0],
        context=tensors["positional_embedding"].shape[0],
        embedding=tensors["text_projection"].shape[1],
    )


def image_side(shape: ClipImageShape) -> int | None:
    """Return the pixels of the square side that the positions are for; None without a square."""
    side = math.isqrt(shape.positions - 1)
    return side * shape.patch if side**2 == shape.positions - 1 else None


def _transformer(tensors: Mapping[str, Tensor], prefix: str) -> ClipTransformerShape:
    blocks = f"{prefix}transformer.resblocks."
    hidden, width = tensors[f"{blocks}0.mlp.c_fc.weight"].shape
    numbers = {
        name.removeprefix(blocks).partition(".")[0] for name in tensors if name.startswith(blocks)
    }
    return ClipTransformerShape(width, len(numbers), hidden, max(1, width // _HEAD_WIDTH))


def _require(tensors: Mapping[str, Tensor], needed: Mapping[str, int], otherwise: str) -> None:
    lacking = [
        f"{name} with {axes} axes"
        for name, axes in needed.items()
        if name not in tensors or tensors[name].dim() != axes
    ]
    if lacking:
        raise ConfigurationError([f"{otherwise}: it lacks {', '.join(lacking)}"])
