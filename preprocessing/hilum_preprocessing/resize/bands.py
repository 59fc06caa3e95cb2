"""The matrix of a resize along one axis, in blocks of one shape for one batched product.

A row of the matrix needs few samples of the input, and those of neighbouring rows overlap. A block
makes eight samples of the output from one window of the input. All windows are equally long, and
each begins `stride` samples after the one before. That costs some multiplications by zero and saves
hundreds of calls; a dense product would do 15 times the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hilum_preprocessing.resize.axes import Axis
from hilum_preprocessing.resize.bounded import BoundedCache
from hilum_preprocessing.resize.kernels import Taps, as_pillow_integers, in_halves
from hilum_preprocessing.resize.matrices import exact_taps

Array = NDArray[np.float64]

Arithmetic = Literal["float", "fp16", "pillow"]
"""The type of weights: float32, half precision for GPUs, or Pillow's whole numbers (1.0: 2^22)."""

# Measured from 2048 to 224 and to 512: 4 pays per call, 16 multiplies more zeros.
_GROUP = 8
_TYPES: Final = {"float": torch.float32, "fp16": torch.float16}
_EXACT_FLOAT32 = 1 << 24
_HIGHEST_LEVEL = 255
# Shapes come from outside and may all differ. One matrix from 2500 to 224 takes 90 KB, the longest
# possible one 3 MB.
_CACHE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Bands:
    """`weights` (blocks, 8, window); window b begins at sample `start + b * stride`.

    `before` and `after` zeros must stand around the input, because the outer windows reach beyond
    it. `sums` (n_out,) float32: the sum of each row of the whole matrix, below 1 for a resizer that
    sees 0 beyond the border. `whole_parts` 0, or weights are whole numbers: 1 in one float64; 2 in
    two float32 halves, then there are 16 rows.
    """

    weights: Tensor
    whole_parts: Literal[0, 1, 2]
    start: int
    stride: int
    before: int
    after: int
    sums: Tensor

    @property
    def outputs(self) -> int:
        """Samples that the blocks make together, with those that round up to whole blocks."""
        return self.weights.shape[0] * _GROUP

    @property
    def held_bytes(self) -> int:
        """Bytes of memory in use."""
        return self.weights.nbytes + self.sums.nbytes

    def windows(self, samples: Tensor) -> Tensor:
        """(blocks, window, lines), a view of `samples` (lines, before + length + after).

        The second factor of the product with the blocks.
        """
        blocks, _, window = self.weights.shape
        offset = samples.storage_offset() + self.before + self.start
        return samples.as_strided(
            (blocks, window, samples.shape[0]), (self.stride, 1, samples.stride(0)), offset
        )


def bands(axis: Axis, arithmetic: Arithmetic, device: torch.device) -> Bands:
    """The matrix of this axis, made once.

    Everything that it depends on is part of the cache's key.
    """
    return MATRICES.get((axis, arithmetic, device), lambda: _bands(axis, arithmetic, device))


def _bands(axis: Axis, arithmetic: Arithmetic, device: torch.device) -> Bands:
    exact = exact_taps(axis)
    if arithmetic == "pillow":
        exact = as_pillow_integers(exact)
    windows = _windows(exact, axis.length)
    dense = _in_blocks(exact, windows.starts, windows.length)
    weights, whole_parts = _held(dense, arithmetic)
    start = int(windows.starts[0])
    stop = int(windows.starts[-1]) + windows.length
    return Bands(
        weights=weights.to(device),
        whole_parts=whole_parts,
        start=start,
        stride=windows.stride,
        before=max(0, -start),
        after=max(0, stop - axis.length),
        sums=torch.from_numpy(exact.weights.sum(axis=1)).to(device, torch.float32),
    )


class _Windows(NamedTuple):
    """Where the window of each block begins, and the length of all of them."""

    starts: NDArray[np.intp]
    stride: int
    length: int


def _windows(exact: Taps, length: int) -> _Windows:
    """The shortest windows at equal distances that hold the samples of every block."""
    low, high = _reach(exact, length)
    last = len(low) - 1
    stride = round(int(low[last] - low[0]) / last) if last else 0
    steps = stride * np.arange(last + 1)
    start = int((low - steps).min())
    return _Windows(start + steps, stride, int((high - steps).max()) - start)


def _reach(exact: Taps, length: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First sample, and the one after the last, that each group of rows needs."""
    low, high = exact.reach(length)
    starts = np.arange(0, len(low), _GROUP)
    return np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def _in_blocks(exact: Taps, starts: NDArray[np.intp], window: int) -> Array:
    """(blocks, 8, window)."""
    dense = np.zeros((len(starts), _GROUP, window))
    row, tap = np.nonzero(exact.weights)
    block = row // _GROUP
    dense[block, row % _GROUP, exact.first[row] + tap - starts[block]] = exact.weights[row, tap]
    return dense


def _held(dense: Array, arithmetic: Arithmetic) -> tuple[Tensor, Literal[0, 1, 2]]:
    """Weights in the type that they are multiplied in.

    Whole ones stay in float64 where sums of their halves could be too large.
    """
    if arithmetic != "pillow":
        return torch.from_numpy(dense).to(_TYPES[arithmetic]), 0
    halves = in_halves(dense)
    largest = _HIGHEST_LEVEL * max(np.abs(part).sum(axis=2).max() for part in halves)
    if largest >= _EXACT_FLOAT32:
        return torch.from_numpy(dense), 1
    return torch.from_numpy(np.concatenate(halves, axis=1)).to(torch.float32), 2


MATRICES: BoundedCache[tuple[Axis, Arithmetic, torch.device], Bands] = BoundedCache(
    _CACHE_BYTES, lambda made: made.held_bytes
)
"""Of all threads."""
