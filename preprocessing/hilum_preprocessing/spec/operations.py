"""The operations that an InputSpec may list, by name.

Intensity maps one pixel's value; geometry looks at several. Torch-free.
"""

from __future__ import annotations

from typing import Final

from hilum_preprocessing.spec.geometry_operations import (
    Blur,
    CentreCrop,
    GeometryOp,
    Pad,
    Resize,
    ResizeSide,
    Size,
)
from hilum_preprocessing.spec.intensity_operations import (
    Clamp,
    EqualizeHist,
    IntensityOp,
    Invert,
    Maxval,
    MinMax,
    Percentile,
    Range,
    Scale,
    ToUint8,
)

__all__ = [
    "GEOMETRY",
    "INTENSITY",
    "Blur",
    "CentreCrop",
    "Clamp",
    "EqualizeHist",
    "GeometryOp",
    "IntensityOp",
    "Invert",
    "Maxval",
    "MinMax",
    "Pad",
    "Percentile",
    "Range",
    "Resize",
    "ResizeSide",
    "Scale",
    "Size",
    "ToUint8",
]

INTENSITY: Final[dict[str, type[IntensityOp]]] = {
    op.op: op for op in (Maxval, MinMax, Percentile, Clamp, ToUint8, EqualizeHist, Invert, Scale)
}
GEOMETRY: Final[dict[str, type[GeometryOp]]] = {
    op.op: op for op in (CentreCrop, Resize, ResizeSide, Pad, Blur)
}
