"""Limits of decoding a wavelet codestream at a lower resolution, by specification.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence

from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.operations import (
    CentreCrop,
    EqualizeHist,
    GeometryOp,
    Maxval,
    MinMax,
    Percentile,
    Resize,
    ResizeSide,
)
from hilum_preprocessing.spec.sizing import crop_slices

_STATISTICAL = (MinMax, Percentile, EqualizeHist)
_ANTIALIASED = {
    "skimage",
    "cv2_area",
    "pil_bilinear_aa",
    "pil_bicubic_aa",
    "pil_lanczos",
    "torch_aa",
}


def choose_reduction(spec: InputSpec, size: tuple[int, int], levels: int) -> int:
    """Return how often a picture of `size` (rows, columns) may be halved for this specification.

    It is coded with `levels` decompositions. The answer is the largest r that leaves at least twice
    the length of the first resize along both axes. It is 0 where the specification does not allow
    it or takes its levels from the picture's own statistics (the low-pass band has others), where
    pixels are made square first, where whole grey levels are resized to the bit, and where the
    resizer does not antialias.
    """
    if (
        spec.source.allow_reduced_decode != "auto"
        or spec.source.pixel_aspect == "resample"
        or takes_statistics(spec)
    ):
        return 0
    ratio = _shrinking(spec.geometry, size)
    return max((r for r in range(levels + 1) if ratio >= 2 << r), default=0)


def takes_statistics(spec: InputSpec) -> bool:
    """Return whether levels depend on more than their stored value and the header."""
    source = spec.source
    return (
        any(
            isinstance(op, _STATISTICAL) or (isinstance(op, Maxval) and _looks_at_picture(op))
            for op in spec.intensity
        )
        or (source.voi not in ("none", "fixed") and source.missing_voi == "minmax")
        or source.monochrome1_about != "nominal"
        or source.padding == "replace_min"
    )


def _looks_at_picture(op: Maxval) -> bool:
    return op.of == "two_to_bits" or op.outside == "reject"


def _shrinking(operations: Sequence[GeometryOp], size: tuple[int, int]) -> float:
    """Return how many times longer the input of the first resize is than its output.

    Along the axis with the smallest ratio. 0: full size only.
    """
    for op in operations:
        if isinstance(op, Resize | ResizeSide):
            return _ratio(op, size)
        if not isinstance(op, CentreCrop):
            return 0.0
        size = tuple(
            len(range(length)[part])
            for length, part in zip(size, crop_slices(op, size), strict=True)
        )  # type: ignore[assignment]  # two
    return 0.0


def _ratio(op: Resize | ResizeSide, size: tuple[int, int]) -> float:
    if op.compute != "float" or op.kernel not in _ANTIALIASED:
        return 0.0
    target = op.size_after(size)
    assert target is not None, "the size before it is known"
    return min(before / after for before, after in zip(size, target, strict=True))
