"""DenseNet-121 and ViT-B/16 behind our preparation, beside a bare torch loop.

`bare`: the network on tensors that are on the device already. `ours`: stored values in page-locked
memory, through preparation on the device, to logits. Both hand logits to the host, two batches in
flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from hilum.models.known_answers import canary
from hilum.models.networks import architectures, untrained
from hilum_preprocessing import InputSpec, StoredValues
from hilum_preprocessing.batch import prepare_batch
from load_tests.gpu.outcome import GpuOutcome, GpuPlan
from load_tests.gpu.rates import TwoInFlight, drawn, in_turns, page_locked, stored, upload
from load_tests.load.figures import Goal

_RECIPES: Final = {"densenet121": "torchxrayvision_224", "vit_b16": "vit_imagenet_half_224"}
_LABELS: Final = 14
_SEED: Final = 20261120
_PICTURES: Final = 16
_KNOWN: Final = 4
# Of a logit, as a release of this precision allows: engine.tolerance, docs/models/profiles.md.
_TOLERANCES: Final = {"f32": 2e-3, "fp16": 0.05}
_GOAL_OF_SLOWER: Final = 0.8


class LoopNetwork(nn.Module):
    """The served graph in one precision: wire tensor to float32 logits, normalised in float32."""

    def __init__(self, served: architectures.ServedNetwork, precision: str) -> None:
        super().__init__()
        self._normaliser = served.normaliser
        self._network = halved(served.network) if precision == "fp16" else served.network.float()
        self._dtype = torch.float16 if precision == "fp16" else torch.float32

    @torch.inference_mode()
    def forward(self, image: Tensor) -> Tensor:
        """(B, 1, H, W) in the wire's type → (B, L) float32."""
        logits: Tensor = self._network(self._normaliser(image).to(self._dtype))[0]
        return logits.float()


def halved(network: nn.Module) -> nn.Module:
    """Return the network in half precision, but for the numbers of its batch normalisation.

    Variances of an input of ±1024 are beyond the largest half, 65504.
    """
    for module in network.modules():
        if not isinstance(module, nn.BatchNorm2d):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.half()
    return network


@dataclass(frozen=True, slots=True)
class NetworkLoop:
    """A network on its device, with the pictures that are read."""

    network: LoopNetwork
    spec: InputSpec
    device: torch.device
    pictures: Sequence[StoredValues]

    def ways(self, size: int) -> dict[str, Callable[[], object]]:
        """Return the loops over a batch of so many images."""
        batch = [self.pictures[number % len(self.pictures)] for number in range(size)]
        ready = prepare_batch(batch, self.spec, self.device)
        return {
            "upload": lambda: upload(batch, self.device),
            "bare": TwoInFlight(lambda: self.network(ready)),
            "ours": TwoInFlight(lambda: self.network(prepare_batch(batch, self.spec, self.device))),
        }


def measure(plan: GpuPlan) -> GpuOutcome:
    """Return differences of logits to the CPU, and images a second by batch."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    rows = [row for name in plan.networks for row in _rows(name, plan)]
    return GpuOutcome({"networks": rows}, tuple(goals(rows, judges_rates=plan.judges_rates)))


def _rows(name: str, plan: GpuPlan) -> Iterator[dict[str, Any]]:
    spec = InputSpec.from_mapping({"recipe": _RECIPES[name]})
    device = torch.device(plan.device)
    network = _made(name, spec, is_quick=plan.is_quick)
    known = torch.cat([torch.from_numpy(canary.known_image(spec, n)) for n in range(_KNOWN)])
    wanted = LoopNetwork(network, "f32")(known)
    pictures = [
        stored(page_locked(drawn(*plan.picture, seed=number), device))
        for number in range(min(_PICTURES, max(plan.batches)))
    ]
    for precision in plan.precisions:
        here = LoopNetwork(network.to(device), precision)
        difference = float((here(known.to(device)).cpu() - wanted).abs().max())
        loop = NetworkLoop(here, spec, device, pictures)
        yield {
            "network": name,
            "precision": precision,
            "largest_logit_difference": difference,
            "images_per_second": {
                str(size): in_turns(loop.ways(size), size, device, plan.seconds, plan.turns)
                for size in plan.batches
            },
        }


def _made(name: str, spec: InputSpec, *, is_quick: bool) -> architectures.ServedNetwork:
    """Return the network with weights from a seed.

    Quick: torch's own, without statistics of the known images, which take seconds.
    """
    torch.manual_seed(_SEED)
    network = architectures.make(name, spec, _LABELS)
    if not is_quick:
        untrained.fill(network, spec, _SEED)
    return architectures.ServedNetwork(network, spec, has_cam=False).eval()


def goals(rows: Sequence[Mapping[str, Any]], *, judges_rates: bool) -> Iterator[Goal]:
    """Yield the tolerance of each precision, and the share of the slower of network and upload."""
    for row in rows:
        what = f"{row['network']}, {row['precision']}"
        yield Goal(
            f"largest difference of a logit to the CPU, {what}",
            row["largest_logit_difference"],
            "",
            _TOLERANCES[row["precision"]],
        )
        if judges_rates:
            yield _share(what, row["images_per_second"])


def _share(what: str, rates: Mapping[str, Mapping[str, float]]) -> Goal:
    largest = max(rates, key=int)
    found = rates[largest]
    share = found["ours"] / min(found["bare"], found["upload"])
    name = f"images/s over the slower of network and upload, batch {largest}, {what}"
    return Goal(name, share, "of 1", _GOAL_OF_SLOWER, at_most=False)
