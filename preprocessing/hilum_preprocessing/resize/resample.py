"""A resize as two banded products, `Wv @ x @ Wh^T`, the same code on every device.

On a CPU resize/compiled.py takes a shorter way to the same sums; this module is its reference.
Columns come first: a block of rows is written once as floats into memory that stays in the cache,
from any stored values, tables or clamps, and leaves it narrow. The narrow picture is kept
transposed, so that the second pass is the first one again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hilum_preprocessing.resize.axes import FULL, Axis, Grid, axes_of
from hilum_preprocessing.resize.bands import Arithmetic, Bands, bands
from hilum_preprocessing.resize.compiled import SampleBuffer, finish, resized, resized_whole
from hilum_preprocessing.resize.kernels import HALF, PILLOW_ONE
from hilum_preprocessing.resize.opencv_linear import linear_uint8
from hilum_preprocessing.resize.scratch import scratch
from hilum_preprocessing.spec.operations import Resize

# Two megabytes of floats: measured from 2048 to 224 and to 512; smaller blocks pay per call, larger
# ones leave the caches.
_BLOCK_SAMPLES = 1 << 19
_LEAST_ROWS = 8
_AS_IS = (1.0, 0.0)  # the slope and offset of levels that need no step

Ends = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pixels:
    """A picture that is made block by block.

    `fill(out, rows)` writes these rows, (rows, columns), into `out` of any float type.
    `extremes(ends)` are the smallest and the largest level of the picture, `ends` its smallest and
    largest stored value where the caller knows them. `line` (slope, offset): the step that `fill`
    leaves out because it can be done after a resize. `is_uint8`: the levels are whole grey levels.
    `size` (rows, columns) in pixels; `grids` say which of them there are. `samples`: the input of
    `fill`, for the compiled resize; None: not on a CPU.
    """

    size: tuple[int, int]
    device: torch.device
    fill: Callable[[Tensor, slice], object]
    extremes: Callable[[Ends | None], tuple[float, float]]
    line: tuple[float, float] = _AS_IS
    is_uint8: bool = False
    grids: tuple[Grid, Grid] = (FULL, FULL)
    samples: SampleBuffer | None = None

    @property
    def counts(self) -> tuple[int, int]:
        """Rows and columns of the samples: the pixels of `size` that are on the grids."""
        rows, columns = (
            grid.count(length) for grid, length in zip(self.grids, self.size, strict=True)
        )
        return rows, columns


def pixels_of(image: Tensor) -> Pixels:
    """(H, W) of any type, as it is."""
    rows, columns = image.shape

    def extremes(_: Ends | None) -> tuple[float, float]:
        smallest, largest = torch.aminmax(image)
        return float(smallest), float(largest)

    return Pixels(
        size=(rows, columns),
        device=image.device,
        fill=lambda out, part: out.copy_(image[part]),
        extremes=extremes,
        is_uint8=image.dtype == torch.uint8,
        samples=SampleBuffer(image.numpy()) if _is_plain(image) else None,
    )


def _is_plain(image: Tensor) -> bool:
    """Whether numpy may see the same memory."""
    return (
        image.device.type == "cpu"
        and image.dtype in (torch.float32, torch.uint8)
        and not image.requires_grad
    )


def whole(pixels: Pixels) -> Tensor:
    """(rows, columns) of all levels: uint8 where they are whole grey levels, else float32."""
    image = _levels_of(pixels)
    return image.to(torch.uint8) if pixels.is_uint8 else image


def _levels_of(pixels: Pixels) -> Tensor:
    """Float32 of all samples that there are."""
    rows, columns = pixels.counts
    image = torch.empty((rows, columns), dtype=torch.float32, device=pixels.device)
    pixels.fill(image, slice(0, rows))
    slope, offset = pixels.line
    return image.mul_(slope).add_(offset) if pixels.line != _AS_IS else image


def resize(pixels: Pixels, op: Resize, arithmetic: Arithmetic = "float") -> Tensor:
    """(height, width) on the device of the pixels: float32, or uint8 where the operation rounds."""
    require_full_float32(pixels.device)
    match op.compute:
        case "float":
            return _resize_float(pixels, op, arithmetic)
        case "uint8_once" if op.kernel == "cv2_linear":
            return linear_uint8(whole(pixels), op)
        case "uint8_once":
            return _resize_float(pixels, op, "float").round_().clamp_(0, 255).to(torch.uint8)
        case "uint8_rounded":
            return _resize_uint8(pixels, op)


def _resize_float(pixels: Pixels, op: Resize, arithmetic: Arithmetic) -> Tensor:
    rows, columns = _axes(pixels, op)
    if arithmetic == "float" and (made := _by_c(pixels, op, rows, columns)) is not None:
        return made
    image = _on_line(_products(pixels, rows, columns, arithmetic), pixels.line)
    return _clipped(image, pixels) if op.clip_to_input else image.contiguous()


def _clipped(image: Tensor, pixels: Pixels) -> Tensor:
    """Return the levels within those of the picture.

    A GPU looks for the ends itself: the host would read all of the picture, and take longer than
    its upload does.
    """
    if pixels.device.type == "cpu":
        return image.clamp(*pixels.extremes(None))
    smallest, largest = torch.aminmax(_levels_of(pixels))
    return image.clamp(smallest, largest)


def _on_line(sums: _Sums, line: tuple[float, float]) -> Tensor:
    """As if slope and offset had come before the resize: an offset counts as a row's sum does."""
    slope, offset = line
    if line == _AS_IS:
        return sums.image
    return torch.addr(sums.image, sums.down, sums.across, beta=slope, alpha=offset)


def _by_c(pixels: Pixels, op: Resize, rows: Axis, columns: Axis) -> Tensor | None:
    """None: not on a CPU, or not compiled."""
    made = None if pixels.samples is None else resized(pixels.samples, rows, columns)
    if made is None:
        return None
    limits = pixels.extremes(made.ends) if op.clip_to_input else (-math.inf, math.inf)
    finish(made, pixels.line, limits)
    return torch.from_numpy(made.image)


class _Sums(NamedTuple):
    """(height, width) float32; the sums of the rows of both matrices."""

    image: Tensor
    down: Tensor
    across: Tensor


def _products(pixels: Pixels, rows: Axis, columns: Axis, arithmetic: Arithmetic) -> _Sums:
    """The same in torch, on any device."""
    down = bands(rows, arithmetic, pixels.device)
    across = bands(columns, arithmetic, pixels.device)
    image = _product(down, _narrow(pixels, across, down))[: rows.n_out, : columns.n_out]
    return _Sums(image.to(torch.float32), down.sums, across.sums)


def _resize_uint8(pixels: Pixels, op: Resize) -> Tensor:
    """Pillow's 8-bit arithmetic to the bit, columns first, rounded to whole levels after each pass.

    `fill` must give whole levels of 0..255. Products of a level and half a 22-bit weight are whole
    numbers, so that float32 adds them without error, in any order and on any device. Pillow 13 does
    rows first when the height shrinks much more than the width (its pull request 9549): single
    pixels then differ, by a few levels beside hard edges. Models were trained with versions that
    never did.
    """
    rows, columns = _axes(pixels, op)
    if (
        pixels.samples is not None
        and (image := resized_whole(pixels.samples, rows, columns)) is not None
    ):
        return torch.from_numpy(image)
    down, across = (bands(axis, "pillow", pixels.device) for axis in (rows, columns))
    narrow = _narrow(pixels, across, down)
    return _product(down, narrow)[: rows.n_out, : columns.n_out].to(torch.uint8)


def _axes(pixels: Pixels, op: Resize) -> tuple[Axis, Axis]:
    return axes_of(op, pixels.size, pixels.grids)


def _narrow(pixels: Pixels, across: Bands, down: Bands) -> Tensor:
    """Return (columns of the result, rows of the picture), after the first pass.

    There are zeros around the rows, as the second pass needs them.
    """
    length, columns = pixels.counts
    narrow, lying = _margined("narrow", across.outputs, length, down, pixels.device)
    rows = _rows_at_once(length, columns, pixels.device)
    block, samples = _margined("block", rows, columns, across, pixels.device)
    for start in range(0, length, rows):
        part = slice(start, min(start + rows, length))
        count = part.stop - start
        pixels.fill(samples[:count], part)
        lying[:, part].copy_(_product(across, block[:count]))
    return narrow


def _rows_at_once(length: int, columns: int, device: torch.device) -> int:
    return (
        length if device.type != "cpu" else min(length, max(_LEAST_ROWS, _BLOCK_SAMPLES // columns))
    )


def _margined(
    purpose: str, lines: int, length: int, across: Bands, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return (lines, before + length + after) with zeros in the margins, and the part between them.

    Lines at distances of a power of two would share a few sets of the cache: products then take
    twice the time.
    """
    width = across.before + length + across.after
    width += 8 if width % 64 == 0 else 0
    whole = scratch(purpose, (lines, width), across.weights.dtype, device)
    whole[:, : across.before] = 0
    whole[:, across.before + length :] = 0
    return whole, whole[:, across.before : across.before + length]


def _product(matrix: Bands, samples: Tensor) -> Tensor:
    """Return (outputs, lines): every line of `samples` resampled.

    With Pillow's weights as whole levels.
    """
    sums = torch.bmm(matrix.weights, matrix.windows(samples))
    return (_levels(sums, matrix) if matrix.whole_parts else sums).reshape(matrix.outputs, -1)


def _levels(sums: Tensor, matrix: Bands) -> Tensor:
    """Sums of levels and whole weights, rounded to levels as Pillow does.

    One half added, then shifted down.

    Halves are shifted one after the other: every step is a whole number below 2^24, or one divided
    by a power of two.
    """
    if matrix.whole_parts == 1:
        return sums.add_(PILLOW_ONE // 2).div_(PILLOW_ONE).floor_().clamp_(0, 255)
    high, low = sums.chunk(2, dim=1)
    return low.div_(HALF).floor_().add_(high).add_(HALF // 2).div_(HALF).floor_().clamp_(0, 255)


def require_full_float32(device: torch.device) -> None:
    """Raises RuntimeError when TF32 or bfloat16 is allowed for float32 products.

    Pixels would lose a third of a grey level.
    """
    backend = torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # absent from torch's types
    if backend.fp32_precision in ("tf32", "bf16"):
        raise RuntimeError(
            f"float32 products on {device.type} run in {backend.fp32_precision}; leave them at"
            " 'ieee' where pixels are prepared"
        )
