"""ResNet-50 (He et al., CVPR 2016) as torchvision builds it, with its parameter names.

The 3 x 3 convolution of a stage takes the stride.

torchxrayvision's `resnet50-res512-all` is this network with one input channel.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

STEM_CHANNELS: Final = 64
EXPANSION: Final = 4
# (blocks, width) of each stage; the first block of all but the first stage halves the size.
STAGES: Final = ((3, 64), (4, 128), (6, 256), (3, 512))


def _projection(channels: int, wide: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, wide, 1, stride=stride, bias=False), nn.BatchNorm2d(wide)
    )


class Bottleneck(nn.Module):
    """(B, C, h, w) → (B, 4 * width, h / stride, w / stride)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wide = width * EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        fits = channels == wide and stride == 1
        self.downsample = None if fits else _projection(channels, wide, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply three convolutions and add the input, or its projection to their size."""
        narrow = functional.relu(self.bn1(self.conv1(x)))
        narrow = functional.relu(self.bn2(self.conv2(narrow)))
        kept = x if self.downsample is None else self.downsample(x)
        return functional.relu(self.bn3(self.conv3(narrow)) + kept)


def _stage(channels: int, blocks: int, width: int, stride: int) -> nn.Sequential:
    wide = width * EXPANSION
    return nn.Sequential(
        Bottleneck(channels, width, stride),
        *(Bottleneck(wide, width, 1) for _ in range(blocks - 1)),
    )


class ResNet50(nn.Module):
    """(B, channels, H, W) float32, normalised → logits (B, outputs) and class activation maps.

    Maps are (B, outputs, H/32, W/32).
    """

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, STEM_CHANNELS, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM_CHANNELS)
        wide = STEM_CHANNELS
        for number, (blocks, width) in enumerate(STAGES, start=1):
            setattr(
                self, f"layer{number}", _stage(wide, blocks, width, stride=1 if number == 1 else 2)
            )
            wide = width * EXPANSION
        self.fc = nn.Linear(wide, outputs)

    @property
    def head(self) -> nn.Linear:
        """The linear layer that reads the result of `represent`."""
        return self.fc

    def maps(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, 2048, H/32, W/32), not negative."""
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return x

    def represent(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, 2048)."""
        return self.maps(x).mean((2, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and exact maps, as DenseNet's: mean of a map + bias = logit."""
        maps = self.maps(x)
        cam = torch.einsum("ok,bkhw->bohw", self.fc.weight, maps)
        return self.fc(maps.mean((2, 3))), cam
