"""Networks by name, and what stands before and after them in the graph that is served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from hilum.models.densenet import DenseNet121
from hilum.models.vision_transformer import VisionTransformerB16
from hilum_preprocessing.spec import InputSpec


class Network(Protocol):
    """What the exporter and the maker of untrained weights need of a network (every one is a torch Module)."""

    @property
    def head(self) -> nn.Linear:
        """The linear layer that reads what `represent` gives."""

    def represent(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) float → (B, features)."""


# (channels, outputs, height, width) → network
NETWORKS: Final[Mapping[str, Callable[[int, int, int, int], nn.Module]]] = {
    "densenet121": DenseNet121,
    "vit_b16": VisionTransformerB16,
}


def make(architecture: str, spec: InputSpec, outputs: int) -> nn.Module:
    """The network, with whatever weights torch gave it."""
    _, height, width = spec.wire_shape
    return NETWORKS[architecture](spec.model_channels, outputs, height, width)


class Normaliser(nn.Module):
    """(B, 1, H, W) wire tensor → (B, channels, H, W) float, (x - mean) / std; broadcasting repeats the one channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        for name, values in (("mean", spec.normalise.mean), ("std", spec.normalise.std)):
            column = torch.tensor(values, dtype=torch.float32).expand(spec.model_channels)
            self.register_buffer(name, column.reshape(1, -1, 1, 1).clone())

    def forward(self, image: Tensor) -> Tensor:
        """In the type of `mean`, so that the whole may be run in double precision."""
        return (image.to(self.mean.dtype) - self.mean) / self.std


class Served(nn.Module):
    """The graph of the artefact: `image` (B, 1, H, W) fp16 or uint8 → `logits` (B, L) float32 and, where exact, `cam` (B, L, h, w) fp16."""

    def __init__(self, network: nn.Module, spec: InputSpec) -> None:
        super().__init__()
        self.normaliser = Normaliser(spec)
        self.network = network

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Logits first."""
        logits, cam = self.network(self.normaliser(image))
        return (logits,) if cam is None else (logits, cam.to(torch.float16))
