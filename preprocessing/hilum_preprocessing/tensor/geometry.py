"""Crop, pad, resize and blur of one picture (H, W) in torch, the same code on every device.

How a resize is computed: resize/resample.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from hilum_preprocessing.resize.bands import Arithmetic
from hilum_preprocessing.resize.resample import Pixels, pixels_of, resize, whole
from hilum_preprocessing.spec.operations import Blur, CentreCrop, GeometryOp, Pad, Resize
from hilum_preprocessing.spec.sizing import crop_slices, pad_margins, sized
from hilum_preprocessing.tensor.blur import blurred


def apply(image: Tensor, operations: Sequence[GeometryOp]) -> Tensor:
    """(H, W) float32 or uint8 to the size that the operations end with, on the same device.

    A resize in float makes float32 of uint8.
    """
    for op in sized(operations, (image.shape[0], image.shape[1])):
        match op:
            case CentreCrop():
                image = image[crop_slices(op, (image.shape[0], image.shape[1]))]
            case Pad():
                image = _pad(image, op)
            case Resize():
                image = resize(pixels_of(image), op)
            case Blur():
                image = blurred(image, op)
    return image


def apply_to_pixels(
    pixels: Pixels, operations: Sequence[GeometryOp], arithmetic: Arithmetic = "float"
) -> Tensor:
    """The same from a picture that is made block by block, its resizes having a height and a width.

    A resize that comes first never sees the picture whole; `arithmetic` float or fp16 is for that
    one.
    """
    if operations and isinstance(operations[0], Resize):
        return apply(resize(pixels, operations[0], arithmetic), operations[1:])
    return apply(whole(pixels), operations)


def _pad(image: Tensor, op: Pad) -> Tensor:
    rows, columns = pad_margins(op, (image.shape[0], image.shape[1]))
    # functional.pad counts from the last axis: left, right, top, bottom.
    return functional.pad(image, [*columns, *rows], value=op.value)
