"""The axes of a resize: which matrix, and which samples of the input there are. Torch-free.

After r levels of a wavelet codestream the sample k of the low-pass band is at pixel 2^r * k of the
picture: on the even grid, and not in the middle of 2^r pixels (ISO/IEC 15444-1, annex F). A resize
that takes it for a smaller picture shifts everything by half a pixel a level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilum_preprocessing.resize.kernels import Taps
from hilum_preprocessing.spec.operations import Resize


@dataclass(frozen=True, slots=True)
class Grid:
    """Sample k is pixel `first + step * k` of an axis."""

    step: int = 1
    first: int = 0

    def count(self, length: int) -> int:
        """Samples within an axis of `length` pixels."""
        return -(-(length - self.first) // self.step)

    def cropped(self, start: int) -> tuple[int, Grid]:
        """Return the samples to leave out and the grid of the rest, for a crop at pixel `start`."""
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
    """Return rows and columns of the resize of a picture of `size` (rows, columns).

    `grids`: the samples that there are of it.
    """
    return Axis(op.kernel, size[0], op.height, grids[0]), Axis(
        op.kernel, size[1], op.width, grids[1]
    )


def on_grid(exact: Taps, length: int, grid: Grid) -> Taps:
    """Return the same matrix for an input of which only the samples of the grid are known.

    Between them the picture is a straight line. The sums of rows and their centres of gravity stay
    the same.
    """
    if grid == FULL:
        return exact
    count = grid.count(length)
    place = (exact.first[:, None] + np.arange(exact.weights.shape[1]) - grid.first) / grid.step
    left = np.floor(place).astype(np.intp)
    dense = np.zeros((len(exact.first), count))
    row = np.arange(len(exact.first))[:, None]
    for at, part in ((left, 1 - (place - left)), (left + 1, place - left)):
        np.add.at(dense, (row, np.clip(at, 0, count - 1)), exact.weights * part)
    return Taps(np.zeros(len(exact.first), np.intp), dense)
