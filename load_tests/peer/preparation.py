"""From a DICOM object to the tensor of torchxrayvision's models.

(1, 224, 224) float32 in [-1024, 1024].

Written after torchxrayvision 1.5.7: `utils.read_xray_dcm` and `utils.normalize`,
`datasets.XRayCenterCrop`, `datasets.XRayResizer(224)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from skimage.transform import resize
from torch.nn.functional import interpolate

SIZE = 224

Picture = NDArray[Any]


def plain(dataset: Dataset) -> Picture:
    """As torchxrayvision does it.

    The whole picture to float32, then scikit-image's resize with its Gaussian.
    """
    picture = (2 * (stored_values(dataset).astype(np.float32) / largest(dataset)) - 1.0) * 1024
    resized: Picture = resize(
        centre_crop(picture)[None], (1, SIZE, SIZE), mode="constant", preserve_range=True
    )  # type: ignore[no-untyped-call]
    return resized.astype(np.float32)


def informed(dataset: Dataset) -> Picture:
    """The same with torch's antialiased resize, and the scale applied to what is left.

    Both are linear.
    """
    square = torch.from_numpy(centre_crop(stored_values(dataset)).astype(np.float32))
    small = interpolate(square[None, None], (SIZE, SIZE), mode="bilinear", antialias=True)[0]
    return small.mul_(2048 / largest(dataset)).sub_(1024).numpy()


def largest(dataset: Dataset) -> int:
    """Largest value that the object could store."""
    return int(2**dataset.BitsStored - 1)


def stored_values(dataset: Dataset) -> Picture:
    """(rows, columns), MONOCHROME1 inverted. Raises NotImplementedError for colour."""
    if dataset.PhotometricInterpretation not in ("MONOCHROME1", "MONOCHROME2"):
        raise NotImplementedError(f"PhotometricInterpretation {dataset.PhotometricInterpretation}")
    values = dataset.pixel_array
    return (
        largest(dataset) - values if dataset.PhotometricInterpretation == "MONOCHROME1" else values
    )


def centre_crop(picture: Picture) -> Picture:
    """The largest square in the middle."""
    rows, columns = picture.shape
    side = min(rows, columns)
    top = rows // 2 - side // 2
    left = columns // 2 - side // 2
    return picture[top : top + side, left : left + side]
