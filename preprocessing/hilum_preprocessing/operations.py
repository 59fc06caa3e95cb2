"""The operations that an InputSpec lists, as data: what to do, not how. Torch-free.

Intensity operations map values to values, one pixel at a time; `Range` is the interval in which values can lie. Geometry
operations map a picture's size to another size; `Size` is (height, width), None while it depends on the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hilum_preprocessing import fields
from hilum_preprocessing.fields import read_by

Range = tuple[float, float]
Size = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Maxval:
    """Divides by the largest possible value. `of` "bits": the nominal range (Bits Stored, or what the LUTs make of it) to [0, 1]."""

    op: ClassVar[str] = "maxval"
    of: Literal["bits"] | float = read_by(fields.word_or(fields.positive_number, "bits"), "bits")

    def bounds(self, before: Range | None) -> Range | None:
        """Range of the result, None while it depends on the image."""
        if self.of == "bits":
            return (0.0, 1.0)
        return before and (before[0] / self.of, before[1] / self.of)


@dataclass(frozen=True, slots=True)
class MinMax:
    """This image's smallest and largest value, padding excluded, to [0, 1]; values outside (padding) are clamped."""

    op: ClassVar[str] = "minmax"

    def bounds(self, before: Range | None) -> Range | None:  # noqa: ARG002 - the same for every input
        """Range of the result."""
        return (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Clamp:
    """Values below `low` become `low`, values above `high` become `high`."""

    op: ClassVar[str] = "clamp"
    low: float = read_by(fields.number)
    high: float = read_by(fields.number)

    def bounds(self, before: Range | None) -> Range | None:  # noqa: ARG002 - the same for every input
        """Range of the result."""
        return (self.low, self.high)


@dataclass(frozen=True, slots=True)
class ToUint8:
    """[0, 1] times 255 to a whole number of 0..255. `truncate` darkens by half a level on average: state what training did."""

    op: ClassVar[str] = "to_uint8"
    mode: Literal["truncate", "round"] = read_by(fields.one_of("truncate", "round"))

    def bounds(self, before: Range | None) -> Range | None:  # noqa: ARG002 - the same for every input
        """Range of the result."""
        return (0.0, 255.0)


@dataclass(frozen=True, slots=True)
class Invert:
    """Mirrors values within their range: low + high - x."""

    op: ClassVar[str] = "invert"

    def bounds(self, before: Range | None) -> Range | None:
        """Range of the result: the same."""
        return before


@dataclass(frozen=True, slots=True)
class Scale:
    """X times `multiply` plus `add`."""

    op: ClassVar[str] = "scale"
    multiply: float = read_by(fields.number)
    add: float = read_by(fields.number, 0.0)

    def bounds(self, before: Range | None) -> Range | None:
        """Range of the result, None while it depends on the image."""
        if before is None:
            return None
        ends = sorted(self.multiply * end + self.add for end in before)
        return (ends[0], ends[1])


@dataclass(frozen=True, slots=True)
class CentreCrop:
    """Cuts a square out of the middle, from `x // 2 - side // 2`. `size` "min": as large as the shorter side."""

    op: ClassVar[str] = "centre_crop"
    size: Literal["min"] | int = read_by(fields.word_or(fields.length, "min"), "min")

    def size_after(self, before: Size) -> Size:
        """Size of the result, None while it depends on the image."""
        if self.size == "min":
            return before and (min(before), min(before))
        return (self.size, self.size)


@dataclass(frozen=True, slots=True)
class Resize:
    """Resamples to exactly this size; the aspect ratio is not kept.

    `compute` "uint8_rounded" rounds to whole grey levels after each of the two passes, as Pillow does. `clip_to_input` keeps
    the result within the input's smallest and largest value, as scikit-image does.
    """

    op: ClassVar[str] = "resize"
    height: int = read_by(fields.length)
    width: int = read_by(fields.length)
    kernel: str = read_by(fields.one_of("skimage", "pil_bilinear_aa", "pil_bicubic_aa", "torch_aa"))
    compute: Literal["float", "uint8_rounded"] = read_by(fields.one_of("float", "uint8_rounded"), "float")
    clip_to_input: bool = read_by(fields.truth, default=False)

    def size_after(self, before: Size) -> Size:  # noqa: ARG002 - the same for every input
        """Size of the result."""
        return (self.height, self.width)


@dataclass(frozen=True, slots=True)
class Pad:
    """Extends the shorter side to a square with `value`, on both sides (`centre`) or at the bottom or the right only."""

    op: ClassVar[str] = "pad"
    value: float = read_by(fields.number)
    place: Literal["centre", "bottom_right"] = read_by(fields.one_of("centre", "bottom_right"), "centre")

    def size_after(self, before: Size) -> Size:
        """Size of the result, None while it depends on the image."""
        return before and (max(before), max(before))


IntensityOp = Maxval | MinMax | Clamp | ToUint8 | Invert | Scale
GeometryOp = CentreCrop | Resize | Pad

INTENSITY: dict[str, type[IntensityOp]] = {op.op: op for op in (Maxval, MinMax, Clamp, ToUint8, Invert, Scale)}
GEOMETRY: dict[str, type[GeometryOp]] = {op.op: op for op in (CentreCrop, Resize, Pad)}
