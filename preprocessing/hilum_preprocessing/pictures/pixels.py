"""The pixels of a picture file, as they are to be stored. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.errors import NotAnalysable, Reason


@dataclass(frozen=True, slots=True)
class PicturePixels:
    """One gray picture: `array` (rows, columns) uint8 or uint16, or the `codestream` as it is.

    `codestream`: JPEG Baseline of one component, which DICOM stores unchanged. `is_lossy`: the
    file was compressed with loss.
    """

    rows: int
    columns: int
    bits: int
    is_lossy: bool
    array: NDArray[Any] | None = None
    codestream: bytes | None = None


def require_size(rows: int, columns: int, maximum_pixels: int) -> None:
    """Raises NotAnalysable (too_large, corrupt_header) before anything of that size is there."""
    if rows < 1 or columns < 1:
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"a picture of {rows} x {columns} pixels")
    if rows * columns > maximum_pixels:
        raise NotAnalysable(Reason.TOO_LARGE, f"{rows} x {columns} pixels, limit {maximum_pixels}")


def gray(array: NDArray[Any]) -> NDArray[Any]:
    """(rows, columns) of gray, or of three equal channels, each with or without opaque alpha.

    Raises NotAnalysable (not_monochrome) for colour and for transparency.
    """
    if array.ndim == 2:
        return array
    channels = array.shape[2]
    if channels in (2, 4):
        _require_opaque(array[..., -1])
    first = np.ascontiguousarray(array[..., 0])
    if channels >= 3 and not all(np.array_equal(first, array[..., at]) for at in (1, 2)):
        raise NotAnalysable(
            Reason.NOT_MONOCHROME,
            "a picture in colour; a radiograph has equal values in all three channels",
        )
    return first


def _require_opaque(alpha: NDArray[Any]) -> None:
    if alpha.min() != np.iinfo(alpha.dtype).max:
        raise NotAnalysable(
            Reason.NOT_MONOCHROME,
            "the picture is transparent in places, so its gray levels are not certain; save it"
            " without transparency",
        )
