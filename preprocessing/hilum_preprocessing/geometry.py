"""Crop, pad and resize of one picture (H, W) in torch, the same code on every device.

A resize is `Wv @ x @ Wh^T`. The matrices are banded (an output row needs few input rows), so they are applied in blocks: a
group of output rows against the input rows that it touches, about 25 times fewer operations than the dense product.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hilum_preprocessing.kernels import PILLOW_ONE, as_pillow_integers, taps
from hilum_preprocessing.operations import CentreCrop, GeometryOp, Pad, Resize
from hilum_preprocessing.placement import crop_slices, pad_margins

# Measured for 2500 x 2048 to 224: smaller groups pay per call, larger ones multiply zeros.
_GROUP_ROWS = 8
_GROUP_COLUMNS = 32
# Shapes come from outside and may all differ, so the cache is bounded: about 3 MB a matrix for the longest possible side.
_CACHED_MATRICES = 64


class Block(NamedTuple):
    """Rows out[0]..out[1] of a matrix, restricted to the columns in[0]..in[1] in which they are not zero."""

    out_start: int
    out_stop: int
    in_start: int
    in_stop: int
    weights: Tensor


def apply(image: Tensor, operations: Sequence[GeometryOp]) -> Tensor:
    """(H, W) float32 or uint8 to the size that the operations end with, same dtype, same device."""
    for op in operations:
        match op:
            case CentreCrop():
                rows, columns = crop_slices(op, (image.shape[0], image.shape[1]))
                image = image[rows, columns]
            case Pad():
                image = _pad(image, op)
            case Resize():
                image = _resize_uint8(image, op) if op.compute == "uint8_rounded" else _resize_float(image, op)
    return image


def _pad(image: Tensor, op: Pad) -> Tensor:
    rows, columns = pad_margins(op, (image.shape[0], image.shape[1]))
    # functional.pad counts from the last axis: left, right, top, bottom.
    return functional.pad(image, [*columns, *rows], value=op.value)


def _resize_float(image: Tensor, op: Resize) -> Tensor:
    require_full_float32(image.device)
    rows = _blocks(op.kernel, image.shape[0], op.height, _GROUP_ROWS, torch.float32, image.device)
    columns = _blocks(op.kernel, image.shape[1], op.width, _GROUP_COLUMNS, torch.float32, image.device)
    values = image.to(torch.float32)
    resized = _along_columns(_along_rows(values, rows), columns)
    if op.clip_to_input:
        smallest, largest = torch.aminmax(values)
        resized = resized.clamp_(smallest, largest)
    return resized


def _resize_uint8(image: Tensor, op: Resize) -> Tensor:
    """Pillow's 8-bit arithmetic to the bit: columns first, rounded to whole levels after each pass.

    Products of a level and a 22-bit weight are whole numbers below 2^53, so float64 adds them without error, in any order and on
    any device; float32 would not. Pillow 13 does rows first when the height shrinks much more than the width (its pull request
    9549): single pixels then differ, by a few levels beside hard edges. Models were trained with versions that never did.
    """
    columns = _blocks(op.kernel, image.shape[1], op.width, _GROUP_ROWS, torch.float64, image.device)
    rows = _blocks(op.kernel, image.shape[0], op.height, _GROUP_ROWS, torch.float64, image.device)
    narrow = _rounded(_along_columns(image, columns))
    return _rounded(_along_rows(narrow, rows))


def _rounded(sums: Tensor) -> Tensor:
    return sums.add_(PILLOW_ONE // 2).div_(PILLOW_ONE).floor_().clamp_(0, 255).to(torch.uint8)


def _along_rows(image: Tensor, blocks: Sequence[Block]) -> Tensor:
    return torch.cat([block.weights @ image[block.in_start : block.in_stop].to(block.weights.dtype) for block in blocks], dim=0)


def _along_columns(image: Tensor, blocks: Sequence[Block]) -> Tensor:
    return torch.cat([image[:, block.in_start : block.in_stop].to(block.weights.dtype) @ block.weights.T for block in blocks], dim=1)


@lru_cache(maxsize=_CACHED_MATRICES)
def _blocks(kernel: str, n_in: int, n_out: int, group: int, dtype: torch.dtype, device: torch.device) -> tuple[Block, ...]:
    """The matrix of a resize along one axis, cut into groups of output samples. Every argument is part of the cache's key."""
    rows = taps(kernel, n_in, n_out)
    if dtype == torch.float64:
        rows = as_pillow_integers(rows)
    edges = [*range(0, n_out, group), n_out]
    blocks = []
    for out_start, out_stop in pairwise(edges):
        first, weights = rows.first[out_start:out_stop], rows.weights[out_start:out_stop]
        in_start, in_stop = max(0, int(first.min())), min(n_in, int(first.max()) + weights.shape[1])
        dense = np.zeros((out_stop - out_start, in_stop - in_start))
        at_row, at_tap = np.nonzero(weights)
        dense[at_row, first[at_row] + at_tap - in_start] = weights[at_row, at_tap]
        blocks.append(Block(out_start, out_stop, in_start, in_stop, torch.from_numpy(dense).to(device, dtype)))
    return tuple(blocks)


def require_full_float32(device: torch.device) -> None:
    """Raises RuntimeError when somebody allowed TF32 or bfloat16 for float32 products: pixels would lose a third of a grey level."""
    backend = torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # absent from torch's types
    if backend.fp32_precision in ("tf32", "bf16"):
        raise RuntimeError(
            f"float32 products on {device.type} run in {backend.fp32_precision}; leave them at 'ieee' where pixels are prepared"
        )
