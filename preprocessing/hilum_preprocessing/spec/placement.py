"""The place of the wire tensor in the image: the way back through crop, pad and resize.

Coordinates are continuous, and sample i covers [i, i + 1): then a crop is a shift, a resize a
factor, and no half pixel is lost. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hilum_preprocessing.spec.operations import CentreCrop, GeometryOp, Pad, Resize
from hilum_preprocessing.spec.sizing import crop_slices, pad_margins, sized

__all__ = ["Box", "Placement", "PlacementAxis", "crop_slices", "pad_margins", "place"]

Box = tuple[float, float, float, float]
"""(top, left, bottom, right) in pixels of the source image."""


@dataclass(frozen=True, slots=True)
class PlacementAxis:
    """Rows or columns: the tensor's place `t` is `offset + scale * t` in the source.

    The tensor has `target` samples. The model saw the source between `start` and `stop`: a crop
    takes margins away, and the samples that a pad adds have no place in the source.
    """

    source: int
    target: int
    start: float
    stop: float
    offset: float = 0.0
    scale: float = 1.0

    def to_source(self, place: float) -> float:
        """From the tensor to the source; places within a padding are outside of start..stop."""
        return self.offset + self.scale * place

    def to_target(self, place: float) -> float:
        """From the source to the tensor.

        Places outside of start..stop are on no tensor, or in its padding.
        """
        return (place - self.offset) / self.scale

    def cell(self, index: int, count: int) -> tuple[float, float] | None:
        """The part of the source under cell `index` of `count` equal cells of the tensor.

        None: the cell is all padding.
        """
        width = self.target / count
        low = max(self.start, self.to_source(index * width))
        high = min(self.stop, self.to_source((index + 1) * width))
        return (low, high) if low < high else None

    def cropped(self, first: int, length: int) -> PlacementAxis:
        """After keeping `length` samples from `first` on."""
        moved = replace(self, target=length, offset=self.to_source(first))
        return replace(
            moved,
            start=max(self.start, moved.to_source(0)),
            stop=min(self.stop, moved.to_source(length)),
        )

    def padded(self, before: int, after: int) -> PlacementAxis:
        """After adding samples on both sides."""
        return replace(self, target=before + self.target + after, offset=self.to_source(-before))

    def resized(self, length: int) -> PlacementAxis:
        """After resampling to `length` samples.

        All our kernels keep the borders of the picture in place (align_corners=False).
        """
        return replace(self, target=length, scale=self.scale * self.target / length)


@dataclass(frozen=True, slots=True)
class Placement:
    """Both axes. A class activation map of (h, w) cells divides the tensor evenly."""

    rows: PlacementAxis
    columns: PlacementAxis

    @property
    def analysed(self) -> Box:
        """The part of the source that reached the model."""
        return (self.rows.start, self.columns.start, self.rows.stop, self.columns.stop)

    def box_of(self, cell: tuple[int, int], grid: tuple[int, int]) -> Box | None:
        """The part of the source under one cell of a grid over the tensor.

        None: the cell shows padding only.
        """
        rows = self.rows.cell(cell[0], grid[0])
        columns = self.columns.cell(cell[1], grid[1])
        return (
            None if rows is None or columns is None else (rows[0], columns[0], rows[1], columns[1])
        )

    def cell_size(self, grid: tuple[int, int]) -> tuple[float, float]:
        """(height, width) of a whole cell in pixels of the source: how coarse the map is."""
        return (
            self.rows.scale * self.rows.target / grid[0],
            self.columns.scale * self.columns.target / grid[1],
        )


def place(operations: Sequence[GeometryOp], size: tuple[int, int]) -> Placement:
    """Return the tensor's place in an image of `size` (rows, columns), after these operations.

    For an image whose pixels a specification makes square, give the operations that
    `sizing.geometry_of` answers.
    """
    placement = Placement(*(_whole(length) for length in size))
    for op in sized(operations, size):
        placement = _after(op, placement)
    return placement


def _whole(length: int) -> PlacementAxis:
    """Every sample at its own place."""
    return PlacementAxis(source=length, target=length, start=0.0, stop=float(length))


def _after(op: GeometryOp, before: Placement) -> Placement:
    rows = before.rows
    columns = before.columns
    size = (rows.target, columns.target)
    match op:
        case CentreCrop():
            kept = crop_slices(op, size)
            return Placement(_cropped(rows, kept[0]), _cropped(columns, kept[1]))
        case Pad():
            margins = pad_margins(op, size)
            return Placement(rows.padded(*margins[0]), columns.padded(*margins[1]))
        case Resize():
            return Placement(rows.resized(op.height), columns.resized(op.width))
        case _:
            return before


def _cropped(axis: PlacementAxis, part: slice) -> PlacementAxis:
    return axis.cropped(part.start, min(part.stop, axis.target) - part.start)
