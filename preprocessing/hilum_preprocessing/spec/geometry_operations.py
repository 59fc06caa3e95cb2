"""Operations that look at more than one pixel, as data: crop, resize, pad, blur.

They follow the table of levels. Torch-free.

Each maps a picture's size to another one; `Size` is (height, width), None while it depends on the
image. The effect on a picture of known size: spec/sizing.py, spec/placement.py. The effect on
pixels: tensor/geometry.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hilum_preprocessing.spec import fields
from hilum_preprocessing.spec.fields import read_by

Size = tuple[int, int] | None

KERNELS = (
    *("skimage", "cv2_area", "cv2_linear"),
    *("pil_bilinear_aa", "pil_bicubic_aa", "pil_lanczos"),
    *("torch_aa", "torch_bicubic", "nearest"),
)
COMPUTES = ("float", "uint8_rounded", "uint8_once")

_KERNEL_MEANING = "the resizer of training: " + ", ".join(f"`{name}`" for name in KERNELS)
_COMPUTE_MEANING = (
    "arithmetic: in float; whole grey levels after each of the two passes, as Pillow rounds; or"
    " once after both, as OpenCV does"
)
_CLIP_MEANING = (
    "keep the result within the input's smallest and largest value, as scikit-image does"
)


@dataclass(frozen=True, slots=True)
class CentreCrop:
    """Cuts a square out of the middle."""

    op: ClassVar[str] = "centre_crop"
    size: Literal["min"] | int = read_by(
        fields.word_or(fields.length, "min"), "min", "side of the square; `min`: the shorter side"
    )
    offset: Literal["halves", "half_gap"] = read_by(
        fields.one_of("halves", "half_gap"),
        "halves",
        "where it begins: `x // 2 - side // 2` as torchxrayvision, or `round((x - side) / 2)` as"
        " torchvision",
        is_later=True,
    )

    def size_after(self, before: Size) -> Size:
        """Size of the result, None while it depends on the image."""
        if self.size == "min":
            return before and (min(before), min(before))
        return (self.size, self.size)


@dataclass(frozen=True, slots=True)
class Resize:
    """Resamples to exactly this size; the aspect ratio is not kept."""

    op: ClassVar[str] = "resize"
    height: int = read_by(fields.length, meaning="rows of the result")
    width: int = read_by(fields.length, meaning="columns of the result")
    kernel: str = read_by(fields.one_of(*KERNELS), meaning=_KERNEL_MEANING)
    compute: Literal["float", "uint8_rounded", "uint8_once"] = read_by(
        fields.one_of(*COMPUTES), "float", _COMPUTE_MEANING
    )
    clip_to_input: bool = read_by(fields.truth, default=False, meaning=_CLIP_MEANING)

    def size_after(self, before: Size) -> Size:  # noqa: ARG002 - the same for every input
        """Size of the result."""
        return (self.height, self.width)


@dataclass(frozen=True, slots=True)
class ResizeSide:
    """Resamples so that the shorter or the longer side gets this length.

    The aspect ratio is kept up to rounding.
    """

    op: ClassVar[str] = "resize_side"
    side: Literal["short", "long"] = read_by(
        fields.one_of("short", "long"), meaning="the side that `size` is for"
    )
    size: int = read_by(fields.length, meaning="its length")
    rounding: Literal["int", "int_of_ratio", "round"] = read_by(
        fields.one_of("int", "int_of_ratio", "round"),
        meaning=(
            "the other side: `int(size * other / side)` as torchvision; both sides `int(x * (size /"
            " side))` as CheXzero; `round(size / (side / other))` as jfhealthcare"
        ),
    )
    kernel: str = read_by(fields.one_of(*KERNELS), meaning=_KERNEL_MEANING)
    compute: Literal["float", "uint8_rounded", "uint8_once"] = read_by(
        fields.one_of(*COMPUTES), "float", _COMPUTE_MEANING
    )
    clip_to_input: bool = read_by(fields.truth, default=False, meaning=_CLIP_MEANING)

    def size_after(self, before: Size) -> Size:
        """Size of the result, None while it depends on the image."""
        return before and self.size_of(before)

    def size_of(self, before: tuple[int, int]) -> tuple[int, int]:
        """(height, width) of the result; never less than one pixel."""
        reference = min(before) if self.side == "short" else max(before)
        height, width = (max(1, self._length(length, reference)) for length in before)
        return height, width

    def _length(self, length: int, reference: int) -> int:
        """The authors' own floating point: `int(x * (320 / x))` is 319 for some x."""
        if self.rounding == "int_of_ratio":
            return int(length * (self.size / reference))
        if length == reference:
            return self.size
        return (
            int(self.size * length / reference)
            if self.rounding == "int"
            else round(self.size / (reference / length))
        )


@dataclass(frozen=True, slots=True)
class Pad:
    """Extends a picture to a square, with one value."""

    op: ClassVar[str] = "pad"
    value: float = read_by(
        fields.number, meaning="level of the added pixels, on the scale of the values that enter"
    )
    place: Literal["centre", "bottom_right"] = read_by(
        fields.one_of("centre", "bottom_right"),
        "centre",
        "on both sides, or at the bottom and the right only",
    )
    to: Literal["square"] | int = read_by(
        fields.word_or(fields.length, "square"),
        "square",
        "side of the square; `square`: the longer side",
        is_later=True,
    )

    def size_after(self, before: Size) -> Size:
        """Size of the result, None while it depends on the image."""
        if self.to == "square":
            return before and (max(before), max(before))
        return (self.to, self.to)


@dataclass(frozen=True, slots=True)
class Blur:
    """cv2.GaussianBlur with sigma 0; the picture is mirrored at its border.

    Whole grey levels stay whole.
    """

    op: ClassVar[str] = "blur"
    size: Literal[3, 5, 7] = read_by(
        fields.number_of(3, 5, 7),
        meaning="side of the kernel; its weights are exact binary fractions",
    )

    def size_after(self, before: Size) -> Size:
        """Size of the result: the same."""
        return before


GeometryOp = CentreCrop | Resize | ResizeSide | Pad | Blur
