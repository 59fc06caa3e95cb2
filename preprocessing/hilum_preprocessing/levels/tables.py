"""Tables of the level of each possible stored value, through the grayscale steps. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.levels.lines import Line, Slope, line_of, line_within

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each possible stored value, the nominal range, and the entries in use.

    `observed` spans the stored values between the picture's smallest and largest one, padding
    excluded. `counts` are the pixels of each stored value, padding excluded; None where no
    operation asks for them. `two_to_bits`: see the intensity operation maxval.
    """

    values: Values
    low: float
    high: float
    observed: slice
    counts: NDArray[np.int64] | None = None
    two_to_bits: float = 0.0

    def map(self, function: Callable[[Values], Values]) -> Levels:
        """All levels, and the ends of the range, through a monotonic function."""
        ends = function(np.array([self.low, self.high]))
        return replace(
            self, values=function(self.values), low=float(ends.min()), high=float(ends.max())
        )

    def with_range(self, values: Values, low: float, high: float) -> Levels:
        """Other levels in another nominal range."""
        return replace(self, values=values, low=low, high=high)

    @property
    def picture(self) -> Values:
        """The levels that the picture uses."""
        return self.values[self.observed]

    @property
    def picture_counts(self) -> NDArray[np.int64]:
        """How many pixels have each of them."""
        if self.counts is None:
            raise ValueError("no histogram was taken of this picture")
        return self.counts[self.observed]


@dataclass(frozen=True, slots=True)
class LevelTable:
    """A finished table: `values[i]` is the level of the stored value `first + i`.

    `observed` as in `Levels`. For a table that is kept for other pictures: `slope`, where levels
    change, None where they are on no line; `lookups` made of it.
    """

    first: int
    values: Values
    observed: slice
    slope: Slope | None = None
    lookups: dict[tuple[np.dtype[Any], type], NDArray[Any]] | None = None

    def entries(self, ends: tuple[int, int]) -> slice:
        """Of the stored values between these, both included."""
        return slice(ends[0] - self.first, ends[1] - self.first + 1)

    def line(self, ends: tuple[int, int]) -> Line | None:
        """Return the line of their levels, or None."""
        part = self.entries(ends)
        known = self.slope
        return (
            line_of(self.values[part], ends[0])
            if known is None
            else line_within(self.values, self.first, known, part)
        )

    def lookup(self, container: np.dtype[Any], dtype: type[np.float32 | np.uint8]) -> NDArray[Any]:
        """Return the level of every word of the container (256 or 65536 entries).

        Words are seen as unsigned numbers: signed stored values index by their two's complement,
        and no index is out of range for any pixel. Do not write to it.
        """
        if self.lookups is None:
            return self._lookup(container, dtype)
        if (made := self.lookups.get((container, dtype))) is None:
            made = self.lookups[container, dtype] = self._lookup(container, dtype)
        return made

    def _lookup(self, container: np.dtype[Any], dtype: type[np.float32 | np.uint8]) -> NDArray[Any]:
        unsigned = f"u{container.itemsize}"
        lookup = np.zeros(1 << (8 * container.itemsize), dtype)
        lookup[
            np.arange(self.first, self.first + len(self.values)).astype(container).view(unsigned)
        ] = self.values
        return lookup
