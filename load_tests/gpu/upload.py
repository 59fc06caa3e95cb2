"""How fast stored values can be uploaded, and beside it, in turns, how many images become tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch

from hilum_preprocessing import InputSpec
from hilum_preprocessing.batch import prepare_batch
from load_tests.gpu.outcome import GpuOutcome, GpuPlan
from load_tests.gpu.rates import Run, drawn, in_turns, page_locked, stored, upload
from load_tests.load.figures import Goal

_BATCH: Final = 16
_GOAL_OF_UPLOAD: Final = 0.8


def measure(plan: GpuPlan) -> GpuOutcome:
    """Return images a second of the bare upload from page-locked memory and of each way beside it."""
    device = torch.device(plan.device)
    spec = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    array = drawn(*plan.picture)
    pageable = [stored(array.copy()) for _ in range(_BATCH)]
    locked = [stored(page_locked(array, device)) for _ in range(_BATCH)]
    ways: dict[str, Run] = {
        "upload": lambda: upload(locked, device),
        "float": lambda: prepare_batch(locked, spec, device),
        "fp16": lambda: prepare_batch(locked, spec, device, "fp16"),
        "from pageable memory": lambda: prepare_batch(pageable, spec, device),
    }
    rates = in_turns(ways, _BATCH, device, plan.seconds * len(ways), plan.turns)
    figures = {
        "image_bytes": array.nbytes,
        "images_per_second": rates,
        "upload_gb_per_second": rates["upload"] * array.nbytes / 1e9,
    }
    return GpuOutcome(figures, tuple(goals(rates)) if plan.judges_rates else ())


def goals(rates: Mapping[str, float]) -> Iterator[Goal]:
    """Yield the one of the design: the upload decides, the arithmetic hides behind it."""
    share = rates["float"] / rates["upload"]
    yield Goal("images/s of the upload rate", share, "of 1", _GOAL_OF_UPLOAD, at_most=False)
