"""Reduced-resolution decoding of wavelet codestreams: how far it may go, and where its samples lie.

Torch-free.

After r levels the sample k of the low-pass band sits at pixel 2^r * k of the picture: on the even
grid, and not in the middle of 2^r pixels (ISO/IEC 15444-1, annex F). A resize that takes it for a
smaller picture shifts everything by half a pixel a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hilum_preprocessing.kernels import Taps
from hilum_preprocessing.operations import (
    CentreCrop,
    EqualizeHist,
    GeometryOp,
    Maxval,
    MinMax,
    Percentile,
    Resize,
    ResizeSide,
)
from hilum_preprocessing.sizing import crop_slices
from hilum_preprocessing.spec import InputSpec

_STATISTICAL = (MinMax, Percentile, EqualizeHist)
_ANTIALIASED = {
    "skimage",
    "cv2_area",
    "pil_bilinear_aa",
    "pil_bicubic_aa",
    "pil_lanczos",
    "torch_aa",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """Sample k is pixel `first + step * k` of an axis."""

    step: int = 1
    first: int = 0

    def count(self, length: int) -> int:
        """Samples within an axis of `length` pixels."""
        return -(-(length - self.first) // self.step)

    def cropped(self, start: int) -> tuple[int, Grid]:
        """Samples to leave out, and the grid of the rest, where pixels before `start` are cut away."""
        skipped = max(0, -((self.first - start) // self.step))
        return skipped, Grid(self.step, self.first + self.step * skipped - start)


FULL = Grid()


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a resize: which matrix, and which samples of the input there are."""

    kernel: str
    n_in: int
    n_out: int
    grid: Grid = FULL

    @property
    def length(self) -> int:
        """Samples that are there: `n_in`, or fewer after a reduced decode."""
        return self.grid.count(self.n_in)


def axes_of(op: Resize, size: tuple[int, int], grids: tuple[Grid, Grid]) -> tuple[Axis, Axis]:
    """Rows and columns of the resize of a picture of `size` (rows, columns), of which there are the samples on the grids."""
    return Axis(op.kernel, size[0], op.height, grids[0]), Axis(
        op.kernel, size[1], op.width, grids[1]
    )


def on_grid(exact: Taps, length: int, grid: Grid) -> Taps:
    """The same matrix for an input of which only the samples of the grid are known.

    Between them the picture is a straight line.

    Sums of rows and their centres of gravity stay what they were.
    """
    if grid == FULL:
        return exact
    count = grid.count(length)
    place = (exact.first[:, None] + np.arange(exact.weights.shape[1]) - grid.first) / grid.step
    left = np.floor(place).astype(np.intp)
    dense = np.zeros((len(exact.first), count))
    row = np.broadcast_to(np.arange(len(exact.first))[:, None], left.shape)
    for at, part in ((left, 1 - (place - left)), (left + 1, place - left)):
        np.add.at(dense, (row, np.clip(at, 0, count - 1)), exact.weights * part)
    return Taps(np.zeros(len(exact.first), np.intp), dense)


def choose_reduction(spec: InputSpec, size: tuple[int, int], levels: int) -> int:
    """How often a picture of `size` (rows, columns), coded with `levels` decompositions, may be halved for this specification.

    The largest r that leaves at least twice the length of the first resize along both axes. 0 where
    the specification does not allow it or takes its levels from the picture's own statistics (the
    low-pass band has others), where pixels are made square first, where whole grey levels are
    resized to the bit, and where the resizer does not antialias.
    """
    if (
        spec.source.allow_reduced_decode != "auto"
        or spec.source.pixel_aspect == "resample"
        or takes_statistics(spec)
    ):
        return 0
    ratio = _shrinking(spec.geometry, size)
    return max((r for r in range(levels + 1) if ratio >= 2 << r), default=0)


def takes_statistics(spec: InputSpec) -> bool:
    """Whether levels depend on more of a picture than the stored value that they stand for, and the header."""
    source = spec.source
    return (
        any(
            isinstance(op, _STATISTICAL) or (isinstance(op, Maxval) and _looks_at_picture(op))
            for op in spec.intensity
        )
        or (source.voi not in ("none", "fixed") and source.missing_voi == "minmax")
        or source.monochrome1_about != "nominal"
        or source.padding == "replace_min"
    )


def _looks_at_picture(op: Maxval) -> bool:
    return op.of == "two_to_bits" or op.outside == "reject"


def _shrinking(operations: Sequence[GeometryOp], size: tuple[int, int]) -> float:
    """How many times longer the input of the first resize is than its output, along the axis where that is least; 0: full size only."""
    for op in operations:
        if isinstance(op, Resize | ResizeSide):
            is_smooth = op.compute == "float" and op.kernel in _ANTIALIASED
            target = op.size_after(size)
            assert target is not None, "the size before it is known"
            return (
                min(before / after for before, after in zip(size, target, strict=True))
                if is_smooth
                else 0.0
            )
        if not isinstance(op, CentreCrop):
            return 0.0
        size = tuple(
            len(range(length)[part])
            for length, part in zip(size, crop_slices(op, size), strict=True)
        )  # type: ignore[assignment]  # two
    return 0.0
