"""The whole path: data set in, wire tensor out. The same code on the CPU and on a GPU; no autograd, nothing shared but the matrices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from torch import Tensor

from hilum_preprocessing.decode import DEFAULT_MAXIMUM_PIXELS, StoredValues, decode
from hilum_preprocessing.geometry import apply
from hilum_preprocessing.grayscale import LevelTable, level_table
from hilum_preprocessing.guard import check_tags, tag_flags
from hilum_preprocessing.operations import CentreCrop, GeometryOp
from hilum_preprocessing.placement import crop_slices
from hilum_preprocessing.spec import InputSpec
from hilum_preprocessing.views import View


@dataclass(frozen=True, slots=True)
class Prepared:
    """`tensor` (1, height, width) fp16 or uint8 as the specification says; `flags` from `Flag`."""

    tensor: Tensor
    view: View
    flags: tuple[str, ...]


def prepare(
    dataset: Dataset, spec: InputSpec, device: str | torch.device = "cpu", maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS
) -> Prepared:
    """What the model sees of one image. Raises NotAnalysable with the reason why it would see nothing."""
    view = check_tags(dataset, spec)
    stored = decode(dataset, maximum_pixels)
    flags = (*stored.flags, *tag_flags(dataset, spec, view))
    return Prepared(prepare_stored(stored, spec, device), view, flags)


@torch.no_grad()
def prepare_stored(stored: StoredValues, spec: InputSpec, device: str | torch.device = "cpu") -> Tensor:
    """(1, height, width) fp16 or uint8 on `device`, for one of the releases that read this image. Raises NotAnalysable.

    The same stored values give the same tensor whatever was prepared before or beside them. `stored` is not changed.
    """
    table = level_table(stored, spec)  # statistics are those of the whole picture, before any crop
    array, rest = _leading_crops(stored.array, spec.geometry)
    levels = _levels(array, table, torch.device(device), is_uint8=spec.is_uint8)
    image = apply(levels, rest)
    return image[None].to(torch.uint8 if spec.wire_dtype == "uint8" else torch.float16)


def _leading_crops(array: NDArray[Any], operations: tuple[GeometryOp, ...]) -> tuple[NDArray[Any], tuple[GeometryOp, ...]]:
    """Crops that come first are cut from the stored values: the table then has fewer pixels to map, with the same result."""
    crops = [op for op in takewhile(lambda op: isinstance(op, CentreCrop), operations) if isinstance(op, CentreCrop)]
    for op in crops:
        array = array[crop_slices(op, (array.shape[0], array.shape[1]))]
    return array, operations[len(crops) :]


def _levels(array: NDArray[Any], table: LevelTable, device: torch.device, *, is_uint8: bool) -> Tensor:
    """(H, W) stored values to levels: float32, or uint8. Levels on a line are computed, others are looked up."""
    line = None if is_uint8 else table.affine(int(array.min()), int(array.max()))
    if line is not None:
        return _on_device(array, device).to(torch.float32).mul_(line[0]).add_(line[1])
    lookup = torch.from_numpy(table.lookup(array.dtype, np.uint8 if is_uint8 else np.float32)).to(device)
    words = _on_device(array.view(f"u{array.itemsize}"), device)
    return lookup.index_select(0, words.reshape(-1).to(torch.int32)).reshape(words.shape)


def _on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copied when it is read-only: torch warns about such memory, although nothing writes to it here."""
    return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)
