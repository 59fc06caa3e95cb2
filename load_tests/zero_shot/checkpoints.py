"""CLIP's towers with weights from a seed, saved as CheXzero's authors save theirs, and a small vocabulary."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from hilum.models.networks.clip import (
    ClipImageShape,
    ClipImageTower,
    ClipTextShape,
    ClipTextTower,
    ClipTransformerShape,
)

HEAD: Final = 64
"""Width of an attention head of CLIP."""
MERGES: Final = (
    "n o</w>", "e d", "e m", "a </w>", "p n", "em a</w>", "ed ema</w>", "p l", "l e", "u r", "a l</w>", "n e", "pn e", "o n", "i a</w>",
)  # fmt: skip
SMALL_VOCABULARY: Final = 514 + len(MERGES)
"""Tokens of a tokenizer with these merges: each byte twice, each merge, beginning and end."""


@dataclass(frozen=True, slots=True)
class ClipSizes:
    """The sizes that a checkpoint of CLIP may choose: of images, of texts, of both."""

    side: int = 224
    patch: int = 32
    width: int = 128
    layers: int = 2
    text_width: int = 64
    text_layers: int = 2
    vocabulary: int = SMALL_VOCABULARY
    context: int = 77
    embedding: int = 32


VIT_B32: Final = ClipSizes(224, 32, 768, 12, 512, 12, 49_408, 77, 512)
VIT_B16_320: Final = ClipSizes(320, 16, 768, 12, 512, 12, 49_408, 77, 768)


def checkpoint(sizes: ClipSizes = ClipSizes(), seed: int = 0) -> dict[str, Tensor]:
    """The state dictionary of a CLIP with these sizes and random weights, none of which is 0 or 1."""
    text = ClipTextTower(
        ClipTextShape(
            _transformer(sizes.text_width, sizes.text_layers),
            sizes.vocabulary,
            sizes.context,
            sizes.embedding,
        )
    )
    places = (sizes.side // sizes.patch) ** 2 + 1
    image = ClipImageTower(
        ClipImageShape(
            _transformer(sizes.width, sizes.layers), sizes.patch, places, sizes.embedding
        ),
        3,
    )
    generator = torch.Generator().manual_seed(seed)
    for tower in (image, text):
        _randomise(tower, generator)
    named = {f"visual.{name}": tensor for name, tensor in image.state_dict().items()}
    return {**named, **text.state_dict(), "logit_scale": torch.tensor(4.6052)}


def _transformer(width: int, layers: int) -> ClipTransformerShape:
    return ClipTransformerShape(width, layers, 4 * width, width // HEAD)


@torch.no_grad()
def _randomise(tower: nn.Module, generator: torch.Generator) -> None:
    for name, parameter in tower.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            parameter.copy_(drawn * 0.1 + (1.0 if name.endswith("weight") else 0.0))
        else:
            fan_in = parameter[0].numel() if parameter.dim() == 4 else parameter.shape[-1]
            parameter.copy_(drawn * fan_in**-0.5)


def write_vocabulary(path: Path, merges: Sequence[str] = MERGES) -> Path:
    """A vocabulary as CLIP's: packed, its version in the first line, then a merge a line."""
    path.write_bytes(gzip.compress("\n".join(['"small vocabulary" 1', *merges]).encode(), mtime=0))
    return path
