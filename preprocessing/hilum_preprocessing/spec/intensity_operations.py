"""Intensity operations as data: changes to the value of a pixel. Torch-free.

Each maps values to values, one pixel at a time; some need a number that the whole picture gives
(its smallest value, a percentile, its histogram). `Range` is the interval in which values can be,
None while it depends on the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hilum_preprocessing.spec import fields
from hilum_preprocessing.spec.fields import read_by

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Maxval:
    """Divides by the largest possible value.

    `of` "bits": the nominal range (Bits Stored, or the output range of the LUTs) to [0, 1].
    "two_to_bits": by 2^BitsStored, or by 256 where no value of the picture reaches that. A number:
    by that number.
    """

    op: ClassVar[str] = "maxval"
    of: Literal["bits", "two_to_bits"] | float = read_by(
        fields.word_or(fields.positive_number, "bits", "two_to_bits"),
        "bits",
        "the largest possible value: the nominal range, or a number",
    )
    outside: Literal["keep", "reject"] = read_by(
        fields.one_of("keep", "reject"),
        "keep",
        "a picture with values below 0 or above the maximum: read it, or refuse it",
        is_later=True,
    )

    def bounds(self, before: Range | None) -> Range | None:
        """Range of the result, None while it depends on the image."""
        if self.of == "bits" or self.outside == "reject":
            return (0.0, 1.0)
        if self.of == "two_to_bits" or before is None:
            return None
        return (before[0] / self.of, before[1] / self.of)


@dataclass(frozen=True, slots=True)
class MinMax:
    """This image's smallest and largest value, padding excluded, to [0, 1].

    Values outside (padding) are clamped.
    """

    op: ClassVar[str] = "minmax"

    def bounds(self, before: Range | None) -> Range | None:  # noqa: ARG002 - the same for every input
        """Range of the result."""
        return (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Percentile:
    """The picture's `low` and `high` percentile (as numpy interpolates them) to 0 and 1.

    Values outside are clamped.
    """

    op: ClassVar[str] = "percentile"
    low: float = read_by(fields.percent, meaning="percentile that becomes 0")
    high: float = read_by(fields.percent, meaning="percentile that becomes 1")

    def bounds(self, before: Range | None) -> Range | None:  # noqa: ARG002 - the same for every input
        """Range of the result."""
        return (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Clamp:
    """Values below `low` become `low`, values above `high` become `high`."""

    op: ClassVar[str] = "clamp"
    low: float = read_by(fields.number, meaning="smallest value that stays")
    high: float = read_by(fields.number, meaning="largest value that stays")

    def bounds(self, before: Range | None) -> Range | None:  # noqa: ARG002 - the same for every input
        """Range of the result."""
        return (self.low, self.high)


@dataclass(frozen=True, slots=True)
class ToUint8:
    """[0, 1] times 255 to a whole number of 0..255.

    `truncate` darkens by half a level on average: state the choice of the training.
    """

    op: ClassVar[str] = "to_uint8"
    mode: Literal["truncate", "round"] = read_by(
        fields.one_of("truncate", "round"), meaning="how a value between two grey levels ends"
    )

    def bounds(self, before: Range | None) -> Range | None:  # noqa: ARG002 - the same for every input
        """Range of the result."""
        return (0.0, 255.0)


@dataclass(frozen=True, slots=True)
class EqualizeHist:
    """Whole grey levels through their own cumulative histogram, as cv2.equalizeHist.

    The darkest one becomes 0, the brightest 255.
    """

    op: ClassVar[str] = "equalize_hist"

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
    multiply: float = read_by(fields.number, meaning="factor")
    add: float = read_by(fields.number, 0.0, "what is added after it")

    def bounds(self, before: Range | None) -> Range | None:
        """Range of the result, None while it depends on the image."""
        if before is None:
            return None
        ends = sorted(self.multiply * end + self.add for end in before)
        return (ends[0], ends[1])


IntensityOp = Maxval | MinMax | Percentile | Clamp | ToUint8 | EqualizeHist | Invert | Scale
