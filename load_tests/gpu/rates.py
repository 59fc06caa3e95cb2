"""Pictures that are drawn, their page-locked copies, and rates of what a device does with them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hilum_preprocessing import StoredValues

Run = Callable[[], object]


def drawn(rows: int, columns: int, bits: int = 12, seed: int = 0) -> NDArray[Any]:
    """Return stored values of a picture with waves, grain, a dark edge and a bright marker."""
    random = np.random.default_rng(seed)
    y = np.linspace(0, 1, rows)[:, None]
    x = np.linspace(0, 1, columns)[None, :]
    waves = 0.5 + 0.3 * np.sin((7 + seed) * x) * np.cos((5 + seed) * y)
    picture = waves + 0.02 * random.standard_normal((rows, columns))
    picture[:, : columns // 20] = 0.02
    picture[rows // 8 : rows // 5, columns // 8 : columns // 3] = 0.97
    levels: NDArray[Any] = (np.clip(picture, 0.01, 0.99) * (2**bits - 1)).astype(
        np.uint8 if bits == 8 else np.uint16
    )
    return levels


def stored(array: NDArray[Any], bits: int = 12) -> StoredValues:
    """Return the values as a decoder hands them on, with their ends, which it has looked for."""
    ends = (int(array.min()), int(array.max()))
    return StoredValues(array, bits, is_signed=False, is_monochrome1=False, ends=ends)


def page_locked(array: NDArray[Any], device: torch.device) -> NDArray[Any]:
    """Return a copy from which `device` reads without a detour; a plain one for a CPU."""
    dtype = torch.uint8 if array.dtype == np.uint8 else torch.uint16
    memory: NDArray[Any] = torch.empty(
        array.shape, dtype=dtype, pin_memory=device.type == "cuda"
    ).numpy()
    memory[:] = array
    return memory


def upload(pictures: Sequence[StoredValues], device: torch.device) -> list[torch.Tensor]:
    """Copy them and do nothing else: the most that any path can reach."""
    return [torch.from_numpy(item.array).to(device, non_blocking=True) for item in pictures]


class TwoInFlight:
    """A call whose result is awaited when the next one is under way, as batches of the analyser are.

    So the copies of one batch travel while another one is computed.
    """

    def __init__(self, run: Callable[[], torch.Tensor]) -> None:
        self._run = run
        self._last: tuple[torch.Tensor, torch.cuda.Event] | None = None

    def __call__(self) -> torch.Tensor | None:
        """Begin a batch, and return the result of the one before on the host; the first has none."""
        result = self._run()
        if result.device.type != "cuda":
            return result
        last = self._last
        self._last = self._on_its_way(result)
        if last is None:
            return None
        last[1].synchronize()
        return last[0]

    def _on_its_way(self, result: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event]:
        here = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        here.copy_(result, non_blocking=True)
        arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]  # in torch's own types
        arrival.record(torch.cuda.current_stream(result.device))
        return here, arrival


def in_turns(
    ways: Mapping[str, Run], images: int, device: torch.device, seconds: float, turns: int
) -> dict[str, float]:
    """Return images a second of each way, the median of its turns; a call is `images` images."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        run()  # memory, matrices and the choice of kernels
    for _ in range(turns):
        for name, run in ways.items():
            rates[name].append(_rate(run, images, device, seconds / turns / len(ways)))
    return {name: statistics.median(values) for name, values in rates.items()}


def _rate(run: Run, images: int, device: torch.device, seconds: float) -> float:
    _wait_for(device)
    count = 0
    began = time.perf_counter()
    while count == 0 or time.perf_counter() - began < seconds:
        run()
        count += images
    _wait_for(device)
    return count / (time.perf_counter() - began)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
