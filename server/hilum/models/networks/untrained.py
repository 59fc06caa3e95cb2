"""Weights for a network without training.

They come from the manifest's seed, are the same on every machine, and give outputs that differ
between images. With them every stage can be run, measured and tested without trained weights. They
know nothing about radiographs.
"""

from __future__ import annotations

from typing import Final, cast

import torch
from torch import Tensor, nn

from hilum.models.known_answers import canary
from hilum.models.networks.architectures import Network, Normaliser
from hilum_preprocessing.spec.input_spec import InputSpec

_IMAGES: Final = 6
_RESIDUAL: Final = 0.25


def fill(network: nn.Module, spec: InputSpec, seed: int) -> None:
    """Set all parameters and statistics in place.

    The network is left in evaluation mode, float32.
    """
    _draw_parameters(network, torch.Generator().manual_seed(seed))
    images = torch.cat(
        [torch.from_numpy(canary.known_image(spec, number)) for number in range(1, _IMAGES + 1)]
    )
    # In double precision the sums of two machines differ by less than float32 keeps, so both store
    # the same numbers.
    network.double()
    with torch.no_grad():
        inputs = Normaliser(spec).double()(images)
        _set_statistics(network, inputs)
        _scale_head(cast(Network, network), inputs)
    network.float().eval()


def _draw_parameters(network: nn.Module, generator: torch.Generator) -> None:
    """Draw the parameters from a uniform distribution.

    A uniform number is a shift of the generator's bits. A normal one depends on the machine's
    logarithm.
    """
    for name, parameter in network.named_parameters():
        with torch.no_grad():
            if parameter.dim() == 1:
                parameter.fill_(_scale(name) if name.endswith("weight") else 0.0)
                continue
            # Variance 2 / fan-in before a ReLU (He et al., ICCV 2015), 1 / fan-in elsewhere; tokens
            # and positions are as large as a patch.
            fan_in = parameter[0].numel() if parameter.dim() != 3 else 1
            bound = (6.0 / fan_in) ** 0.5 if parameter.dim() == 4 else (3.0 / fan_in) ** 0.5
            parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)


def _scale(name: str) -> float:
    """Return a small scale for the last normalisation of a residual block (Goyal et al. 2017).

    Otherwise rounding grows from block to block, up to 1e-4.
    """
    return _RESIDUAL if name.endswith("bn3.weight") else 1.0


def _set_statistics(network: nn.Module, inputs: Tensor) -> None:
    """Set mean and variance of batch normalisation from the known images.

    One pass is enough: the statistics of each layer follow its input.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    cast(Network, network).represent(inputs)
    network.eval()


def _scale_head(network: Network, inputs: Tensor) -> None:
    """Scale the head: logits of the known images have mean 0, standard deviation 1 for each label.

    The rows of the head are at right angles to the mean feature, so that maps and logits hold
    differences, not a large common part.
    """
    features = network.represent(inputs)
    mean = features.mean(0)
    weight = network.head.weight
    weight.sub_(torch.outer(weight @ mean, mean) / mean.dot(mean))
    spread = ((features - mean) @ weight.T).std(0)
    weight.div_(spread[:, None])
