"""The part of a picture that the first crops of a specification leave. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.resize.axes import Grid
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.operations import CentreCrop, GeometryOp
from hilum_preprocessing.spec.sizing import crop_slices, geometry_of


@dataclass(frozen=True, slots=True)
class Visible:
    """`kept` (rows, columns) of the stored values.

    All pixels of a picture of `size` (rows, columns), or those on its `grids`.

    `operations` come after the crops that led here; their resizes have a height and a width.
    """

    kept: tuple[slice, slice]
    size: tuple[int, int]
    grids: tuple[Grid, Grid]
    operations: tuple[GeometryOp, ...]

    def within(self, array: NDArray[Any]) -> NDArray[Any]:
        """The kept part of the stored values (rows, columns), a view."""
        return array[self.kept]


def visible(stored: StoredValues, spec: InputSpec) -> Visible:
    """Cut the crops that come first from the stored values.

    Later steps then skip the pixels outside. Raises NotAnalysable.
    """
    grid = Grid(1 << stored.reduced)
    rows, columns = (slice(0, length) for length in stored.array.shape)
    part = Visible(
        (rows, columns),
        stored.size,
        (grid, grid),
        geometry_of(spec, stored.size, stored.pixel_aspect),
    )
    while part.operations and isinstance(part.operations[0], CentreCrop):
        part = _cropped(part, part.operations[0])
    return part


def _cropped(part: Visible, op: CentreCrop) -> Visible:
    cuts = zip(part.kept, part.size, part.grids, crop_slices(op, part.size), strict=True)
    rows, columns = (_cut(*cut) for cut in cuts)
    return Visible(
        (rows[0], columns[0]), (rows[1], columns[1]), (rows[2], columns[2]), part.operations[1:]
    )


def _cut(kept: slice, length: int, grid: Grid, crop: slice) -> tuple[slice, int, Grid]:
    """Return the part that a crop keeps of one axis: stored values, length and grid."""
    start, stop, _ = crop.indices(length)
    skipped, after = grid.cropped(start)
    first = kept.start + skipped
    return slice(first, first + after.count(stop - start)), stop - start, after
