"""Networks by name, and the layers before and after them in the served graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from hilum.models.manifest.tables import OptionsTable
from hilum.models.networks import clip_shape, vit_shape
from hilum.models.networks.clip import ClipPromptPairs
from hilum.models.networks.densenet import DenseNet121
from hilum.models.networks.resnet import ResNet50
from hilum.models.networks.vit import VisionTransformer
from hilum_preprocessing.spec.input_spec import InputSpec

Tensors = Mapping[str, Tensor]


class Network(Protocol):
    """A network as the exporter and the maker of untrained weights use it.

    Every one is a torch Module.
    """

    @property
    def head(self) -> nn.Linear:
        """The linear layer that reads the result of `represent`."""

    def represent(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) float → (B, features)."""


@dataclass(frozen=True, slots=True)
class ArchitectureOptions:
    """The demands of a release on its network.

    `tensors`, by our names, give the sizes that differ within an architecture.
    """

    spec: InputSpec
    outputs: int
    options: OptionsTable
    tensors: Tensors | None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(channels, outputs, height, width)."""
        return self.spec.model_channels, self.outputs, *self.spec.wire_shape[1:]


def _vit(request: ArchitectureOptions) -> nn.Module:
    spec = request.spec
    options = request.options
    tensors = request.tensors
    shape = (
        vit_shape.untrained(options, spec)
        if tensors is None
        else vit_shape.from_tensors(tensors, options, spec)
    )
    return VisionTransformer(shape, *request.sizes)


def _clip(request: ArchitectureOptions) -> nn.Module:
    assert request.tensors is not None  # the manifest's rules refuse a seed
    shape = clip_shape.fitting_image_shape(request.tensors, request.spec)
    return ClipPromptPairs(shape, *request.sizes[:2])


NETWORKS: Final[Mapping[str, Callable[[ArchitectureOptions], nn.Module]]] = {
    "clip_vit": _clip,
    "densenet121": lambda request: DenseNet121(*request.sizes),
    "resnet50": lambda request: ResNet50(*request.sizes[:2]),
    "vit": _vit,
    "vit_b16": lambda request: VisionTransformer(vit_shape.b16(request.spec), *request.sizes),
}
_AS_PUBLISHED: Final = OptionsTable()


def make(
    architecture: str,
    spec: InputSpec,
    outputs: int,
    options: OptionsTable = _AS_PUBLISHED,
    tensors: Tensors | None = None,
) -> nn.Module:
    """Return the network, with torch's initial weights.

    Raises ConfigurationError when `tensors` are of another size than `options`.
    """
    return NETWORKS[architecture](ArchitectureOptions(spec, outputs, options, tensors))


class Normaliser(nn.Module):
    """(B, 1, H, W) wire tensor → (B, channels, H, W) float, (x - mean) / std.

    Broadcasting repeats the one channel.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        for name, values in (("mean", spec.normalise.mean), ("std", spec.normalise.std)):
            column = torch.tensor(values, dtype=torch.float32).expand(spec.model_channels)
            self.register_buffer(name, column.reshape(1, -1, 1, 1).clone())

    def forward(self, image: Tensor) -> Tensor:
        """Normalise in the type of `mean`, so that the whole may be run in double precision."""
        return (image.to(self.mean.dtype) - self.mean) / self.std


class ServedNetwork(nn.Module):
    """The graph of the artefact.

    `image` (B, 1, H, W) fp16 or uint8 → `logits` (B, L) float32 and, where asked, `cam` (B, L, h,
    w) fp16.
    """

    def __init__(self, network: nn.Module, spec: InputSpec, has_cam: bool = True) -> None:
        super().__init__()
        self.normaliser = Normaliser(spec)
        self.network = network
        self.has_cam = has_cam

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return logits first; no maps where none are exact."""
        logits, cam = self.network(self.normaliser(image))
        return (logits, cam.to(torch.float16)) if self.has_cam and cam is not None else (logits,)
