"""DenseNet-121 (Huang et al., CVPR 2017), with the parameter names of torchvision.

torchxrayvision has the same names. State dictionaries with the same number of channels and outputs
load unchanged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

GROWTH: Final = 32
BLOCKS: Final = (6, 12, 24, 16)
STEM_CHANNELS: Final = 64
BOTTLENECK: Final = 4


class DenseLayer(nn.Module):
    """(B, C, h, w) → (B, C + 32, h, w): the input and 32 new channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, BOTTLENECK * GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(BOTTLENECK * GROWTH)
        self.conv2 = nn.Conv2d(BOTTLENECK * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the bottleneck, then the growth."""
        narrow = self.conv1(functional.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(functional.relu(self.norm2(narrow)))], 1)


def _block(layers: int, channels: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            (f"denselayer{i + 1}", DenseLayer(channels + i * GROWTH)) for i in range(layers)
        )
    )


def _transition(channels: int) -> nn.Sequential:
    """Return a layer that halves the channels and the size."""
    conv = nn.Conv2d(channels, channels // 2, 1, bias=False)
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(channels), relu=nn.ReLU(), conv=conv, pool=nn.AvgPool2d(2, 2)
        )
    )


def _add_blocks(parts: OrderedDict[str, nn.Module]) -> int:
    """Add the dense blocks with the transitions between them; return the channels at the end."""
    wide = STEM_CHANNELS
    for number, layers in enumerate(BLOCKS, start=1):
        parts[f"denseblock{number}"] = _block(layers, wide)
        wide += layers * GROWTH
        if number < len(BLOCKS):
            parts[f"transition{number}"] = _transition(wide)
            wide //= 2
    return wide


class DenseNet121(nn.Module):
    """(B, channels, H, W) float32, normalised → logits (B, outputs) and class activation maps.

    Maps are (B, outputs, H/32, W/32).
    """

    def __init__(self, channels: int, outputs: int, height: int, width: int) -> None:
        super().__init__()
        self.grid = (height // 32, width // 32)
        parts: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(channels, STEM_CHANNELS, 7, stride=2, padding=3, bias=False),
            norm0=nn.BatchNorm2d(STEM_CHANNELS),
            relu0=nn.ReLU(),
            pool0=nn.MaxPool2d(3, stride=2, padding=1),
        )
        wide = _add_blocks(parts)
        parts["norm5"] = nn.BatchNorm2d(wide)
        self.features = nn.Sequential(parts)
        self.classifier = nn.Linear(wide, outputs)

    @property
    def head(self) -> nn.Linear:
        """The linear layer that reads the result of `represent`."""
        return self.classifier

    def represent(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, 1024)."""
        return functional.relu(self.features(x)).mean((2, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and exact maps: mean of a map + bias = logit.

        Pooling and head are linear (Zhou et al., CVPR 2016).
        """
        maps = functional.relu(self.features(x))
        cam = functional.conv2d(maps, self.classifier.weight[:, :, None, None])
        return self.classifier(maps.mean((2, 3))), cam
