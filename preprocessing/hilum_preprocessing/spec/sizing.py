"""Geometry operations for a picture of known size: bounds of crops, pads and resizes.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeGuard

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.spec.operations import CentreCrop, GeometryOp, Pad, Resize, ResizeSide

if TYPE_CHECKING:
    from hilum_preprocessing.spec.input_spec import InputSpec

_Step = tuple[GeometryOp, tuple[int, int], tuple[int, int]]
"""An operation, and the size before and after it."""

_SQUARE_WITHIN = 0.005  # a row of 224; spacings are often written with three digits
_WIDEST_ASPECT = 4.0
# A small file could need gigabytes: 8 x 65535 pixels with the shorter side resized to 512. A
# picture of 6000 rows, padded to a square, fits.
MOST_PIXELS_BETWEEN: Final = 40_000_000
# The matrix of a resize to n samples may take 3 * n * n bytes while it is made (resize/bands.py).
LONGEST_SIDE_BETWEEN: Final = 8_192


def geometry_of(
    spec: InputSpec, size: tuple[int, int], pixel_aspect: float | None = 1.0
) -> tuple[GeometryOp, ...]:
    """The operations for an image of `size` (rows, columns), each resize to a height and a width.

    Raises NotAnalysable: pixels that are not square where the specification refuses them, an image
    that is smaller than its crop, or one that would be too large on the way (`MOST_PIXELS_BETWEEN`,
    `LONGEST_SIDE_BETWEEN`). Nothing is
    allocated.
    """
    steps = tuple(_steps((*_squaring(spec, size, pixel_aspect), *spec.geometry), size))
    _check_between(steps, size)
    if (steps[-1][2] if steps else size) != spec.wire_shape[1:]:
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            f"{size[0]} x {size[1]} pixels are too few for the crop of the specification",
        )
    return tuple([op for op, _, _ in steps])


def sized(operations: Sequence[GeometryOp], size: tuple[int, int]) -> Iterator[GeometryOp]:
    """The same operations with every resize to a height and a width.

    Those that are so already stay as they are.
    """
    return (op for op, _, _ in _steps(operations, size))


def _steps(operations: Sequence[GeometryOp], size: tuple[int, int]) -> Iterator[_Step]:
    for op in operations:
        exact = _exact(op, size)
        after = _size_after(exact, size)
        yield exact, size, after
        size = after


def _check_between(steps: Sequence[_Step], size: tuple[int, int]) -> None:
    """Raises NotAnalysable (too_large) for a picture on the way that is too large.

    That is larger than both the source and the need of radiographs.
    """
    most = max(MOST_PIXELS_BETWEEN, size[0] * size[1])
    for op, before, after in steps:
        if after[0] * after[1] > most or _is_drawn_out(op, before, after):
            raise NotAnalysable(
                Reason.TOO_LARGE,
                f"{op.op} would make {after[0]} x {after[1]} of {before[0]} x {before[1]} pixels",
            )


def _is_drawn_out(op: GeometryOp, before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Whether a resize makes an axis longer than it was, and than its matrix may be."""
    return isinstance(op, Resize) and any(
        length > max(LONGEST_SIDE_BETWEEN, was) for length, was in zip(after, before, strict=True)
    )


def _exact(op: GeometryOp, size: tuple[int, int]) -> GeometryOp:
    if isinstance(op, ResizeSide):
        height, width = op.size_of(size)
        op = Resize(height, width, op.kernel, op.compute, op.clip_to_input)
    if (
        isinstance(op, Resize)
        and op.kernel == "cv2_area"
        and (op.height > size[0] or op.width > size[1])
    ):
        # resize.cpp: INTER_AREA takes the mean of an area only where both axes shrink.
        op = replace(op, kernel="cv2_area_enlarging")
    return op


def _size_after(op: GeometryOp, size: tuple[int, int]) -> tuple[int, int]:
    match op:
        case CentreCrop():
            kept = crop_slices(op, size)
            rows, columns = (
                min(part.stop, length) - part.start for part, length in zip(kept, size, strict=True)
            )
        case Pad():
            rows, columns = (
                length + sum(gap) for length, gap in zip(size, pad_margins(op, size), strict=True)
            )
        case Resize():
            rows = op.height
            columns = op.width
        case _:
            return size
    return rows, columns


def _squaring(
    spec: InputSpec, size: tuple[int, int], pixel_aspect: float | None
) -> tuple[GeometryOp, ...]:
    """The resize that makes pixels square: the coarser axis is enlarged, so nothing is lost."""
    policy = spec.source.pixel_aspect
    if policy == "ignore" or _is_square(pixel_aspect):
        return ()
    if policy == "reject_if_not_square" or not _is_usable(pixel_aspect):
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            "pixels are not square, or their spacing makes no sense",
        )
    compute: Literal["float", "uint8_rounded"] = "uint8_rounded" if spec.is_uint8 else "float"
    return (Resize(*_squared(size, pixel_aspect), "pil_bilinear_aa", compute),)


def _is_square(pixel_aspect: float | None) -> bool:
    return pixel_aspect is not None and abs(pixel_aspect - 1.0) <= _SQUARE_WITHIN


def _is_usable(pixel_aspect: float | None) -> TypeGuard[float]:
    """A pixel may be four times as high as wide, and as wide as high."""
    return pixel_aspect is not None and 1 / _WIDEST_ASPECT <= pixel_aspect <= _WIDEST_ASPECT


def _squared(size: tuple[int, int], pixel_aspect: float) -> tuple[int, int]:
    rows, columns = size
    if pixel_aspect > 1:
        return round(rows * pixel_aspect), columns
    return rows, round(columns / pixel_aspect)


def crop_slices(op: CentreCrop, size: tuple[int, int]) -> tuple[slice, slice]:
    """Rows and columns of the crop; a side that is too short stays whole."""
    side = min(size) if op.size == "min" else op.size
    starts = [max(0, _crop_start(op, length, side)) for length in size]
    return slice(starts[0], starts[0] + side), slice(starts[1], starts[1] + side)


def _crop_start(op: CentreCrop, length: int, side: int) -> int:
    return length // 2 - side // 2 if op.offset == "halves" else round((length - side) / 2)


def pad_margins(op: Pad, size: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Samples that the pad adds: (above, below), (left, right).

    A side that is long enough gets none.
    """
    side = max(size) if op.to == "square" else op.to
    missing = [max(0, side - length) for length in size]
    before = [gap // 2 if op.place == "centre" else 0 for gap in missing]
    return (before[0], missing[0] - before[0]), (before[1], missing[1] - before[1])
