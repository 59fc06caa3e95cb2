"""The whole path: data set in, wire tensor out.

The same code on the CPU and on a GPU; no autograd, nothing shared but the matrices.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from torch import Tensor

from hilum_preprocessing.decode import DEFAULT_MAXIMUM_PIXELS, StoredValues
from hilum_preprocessing.decode_options import decoding_for
from hilum_preprocessing.guard.level_doubts import level_flags
from hilum_preprocessing.guard.tags import admitted, tag_flags
from hilum_preprocessing.header.files import read_file
from hilum_preprocessing.header.views import View
from hilum_preprocessing.levels.grayscale import finished, level_table
from hilum_preprocessing.pictures.image_input import ImageInput
from hilum_preprocessing.resize.resample import require_full_float32
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.tensor.compiled_path import prepared
from hilum_preprocessing.tensor.geometry import apply_to_pixels
from hilum_preprocessing.tensor.stored_pixels import pixels_of_stored, stored_extremes, words_of
from hilum_preprocessing.tensor.visible import Visible, visible

_WIRE_TYPES: Final = {"fp16": torch.float16, "uint8": torch.uint8}


@dataclass(frozen=True, slots=True)
class Prepared:
    """`tensor` (1, height, width) fp16 or uint8 as the specification says, uint8 within 0..255.

    `flags` from `Flag`.
    """

    tensor: Tensor
    view: View
    flags: tuple[str, ...]


def prepare(
    image: Dataset | str | os.PathLike[str] | ImageInput,
    spec: InputSpec,
    device: str | torch.device = "cpu",
    maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS,
) -> Prepared:
    """The model's input of one image.

    For `torchxrayvision_224` (1, 224, 224) fp16 within -1024 and 1024.

    `image` is a data set, the path of a DICOM file, which is then read by `read_file`, or a PNG or
    JPEG file as `ImageInput`.

    Raises NotAnalysable with the reason why there is none: a file that is not DICOM is such a
    reason. Raises OSError when the file cannot be opened, TypeError for any other `image`.
    """
    dataset = image if isinstance(image, Dataset) else _read(image, maximum_pixels)
    view, header = admitted(dataset, spec)
    stored = decoding_for(dataset, spec).of(dataset, maximum_pixels, header)
    flags = (*stored.flags, *level_flags(stored, spec), *tag_flags(dataset, spec, view))
    return Prepared(prepare_stored(stored, spec, device), view, flags)


def _read(image: str | os.PathLike[str] | ImageInput, maximum_pixels: int) -> Dataset:
    if isinstance(image, ImageInput):
        return image.data_set(maximum_pixels)
    if not isinstance(image, str | os.PathLike):  # an integer would be taken for a file descriptor
        raise TypeError(
            "image must be a pydicom Dataset, the path of a DICOM file or an ImageInput, not"
            f" {type(image).__name__}"
        )
    return read_file(image)


def prepare_stored(
    stored: StoredValues,
    spec: InputSpec,
    device: str | torch.device = "cpu",
    arithmetic: Literal["float", "fp16"] = "float",
) -> Tensor:
    """(1, height, width) fp16, or uint8 within 0..255, on `device`, for one release.

    `arithmetic` fp16 is for GPUs, and within a third of a grey level of float; whole grey levels
    are exact in both. The same stored values give the same tensor with any pictures before or
    beside them. `stored` is not changed. Raises NotAnalysable.
    """
    require_full_float32(torch.device(device))
    if arithmetic == "float" and _is_here(device) and (made := prepared(stored, spec)) is not None:
        return torch.from_numpy(made)
    return _by_torch(stored, spec, torch.device(device), arithmetic)


def prepare_array(
    stored: StoredValues, spec: InputSpec, device: str | torch.device = "cpu"
) -> NDArray[np.float16] | NDArray[np.uint8]:
    """The same in numpy's hands.

    On a CPU torch is not touched where compiled code does it all, nor asked how precise it would
    be.
    """
    if _is_here(device) and (made := prepared(stored, spec)) is not None:
        return made
    array: NDArray[np.float16] | NDArray[np.uint8] = (
        _by_torch(stored, spec, torch.device(device), "float").cpu().numpy()
    )
    return array


def _is_here(device: str | torch.device) -> bool:
    return device == "cpu" or str(device) == "cpu"


@torch.no_grad()
def _by_torch(
    stored: StoredValues,
    spec: InputSpec,
    device: torch.device,
    arithmetic: Literal["float", "fp16"],
) -> Tensor:
    part = visible(stored, spec)
    return prepare_visible(
        stored, part, words_of(part.within(stored.array), device), spec, arithmetic
    )


def prepare_visible(
    stored: StoredValues,
    part: Visible,
    words: Tensor,
    spec: InputSpec,
    arithmetic: Literal["float", "fp16"] = "float",
) -> Tensor:
    """The same from `words`, the stored values of the visible part on their device."""
    array = part.within(stored.array)
    # Statistics are those of the whole picture, before any crop.
    ends = stored.ends or stored_extremes(stored.array)
    table = level_table(stored, spec, ends)
    pixels = pixels_of_stored(array, words, table, ends, arithmetic, is_uint8=spec.is_uint8)
    placed = replace(pixels, size=part.size, grids=part.grids)
    image = apply_to_pixels(placed, part.operations, arithmetic)
    if spec.order == "resize_first":
        image = torch.from_numpy(finished(image.cpu().numpy(), stored, spec)).to(words.device)
    return image[None].to(_WIRE_TYPES[spec.wire_dtype]).contiguous()
