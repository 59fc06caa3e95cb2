"""The GPU: how fast stored values can be uploaded, and beside it, in turns, how many images become tensors. Needs one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

from hilum_preprocessing import InputSpec, StoredValues, prepare_stored
from hilum_preprocessing.batch import prepare_batch
from load_tests.load.figures import Goal
from load_tests.preprocess.cases import picture

_SIZE = (2500, 2048)
_BATCH = 16
_TURNS = 5
_GOAL_OF_UPLOAD = 0.8
_FP16_ERROR = 0.5
Arithmetic = Literal["float", "fp16"]


@dataclass(frozen=True, slots=True)
class Device:
    """Images a second: `upload` from page-locked memory alone; the others from there to tensors.

    Errors on ±1024, after fp16.
    """

    name: str
    image_bytes: int
    upload: float
    float_: float
    fp16: float
    from_pageable: float
    float_error: float
    fp16_error: float

    @property
    def goals(self) -> list[Goal]:
        """Those of the design."""
        return [
            Goal(
                "images/s of the upload rate",
                self.float_ / self.upload,
                "of 1",
                _GOAL_OF_UPLOAD,
                at_most=False,
            ),
            Goal("largest difference to the CPU, float", self.float_error, "levels", _FP16_ERROR),
            Goal("largest difference to the CPU, fp16", self.fp16_error, "levels", 2 * _FP16_ERROR),
        ]


def measure_device(device: torch.device, seconds: float) -> Device:
    """Each way in turns, medians of five."""
    spec = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    array = picture(*_SIZE)
    pageable = [_stored(array.copy()) for _ in range(_BATCH)]
    locked = [_stored(_locked(array)) for _ in range(_BATCH)]
    ways: dict[str, Callable[[], object]] = {
        "upload": lambda: [
            torch.from_numpy(item.array).to(device, non_blocking=True) for item in locked
        ],
        "float_": lambda: prepare_batch(locked, spec, device),
        "fp16": lambda: prepare_batch(locked, spec, device, "fp16"),
        "from_pageable": lambda: prepare_batch(pageable, spec, device),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_TURNS):
        for name, run in ways.items():
            rates[name].append(_rate(run, device, seconds / _TURNS / len(ways)))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    errors = {f"{name}_error": _error(locked[0], spec, device, how) for name, how in _HOW.items()}
    return Device(torch.cuda.get_device_name(device), array.nbytes, **medians, **errors)


_HOW: dict[str, Arithmetic] = {"float": "float", "fp16": "fp16"}


def _locked(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    memory = torch.empty(array.shape, dtype=torch.uint16, pin_memory=True).numpy()
    memory[:] = array
    return memory


def _stored(array: np.ndarray[Any, Any]) -> StoredValues:
    return StoredValues(array, 12, is_signed=False, is_monochrome1=False)


def _rate(run: Callable[[], object], device: torch.device, seconds: float) -> float:
    run()
    torch.cuda.synchronize(device)
    count = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        run()
        count += _BATCH
    torch.cuda.synchronize(device)
    return count / (time.perf_counter() - began)


def _error(
    stored: StoredValues, spec: InputSpec, device: torch.device, arithmetic: Arithmetic
) -> float:
    on_cpu = prepare_stored(stored, spec)
    on_device = prepare_stored(stored, spec, device, arithmetic).cpu()
    return float((on_cpu.double() - on_device.double()).abs().max())


def as_json(found: Device) -> dict[str, Any]:
    """For the result."""
    return {
        "device": asdict(found),
        "upload_gb_per_second": found.upload * found.image_bytes / 1e9,
        "goals": [g.as_json() for g in found.goals],
    }
