"""What the phantom is drawn with: attenuation over a grid in centimetres, and detector noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]
Point = tuple[float, float]
Points = Sequence[Point]

FIELD_CM = 37.0
_CANVAS_ROWS = 480


class Canvas:
    """Attenuation (arbitrary units) over a grid of `x` cm (0 in the middle, positive to the image's right) and `y` cm from the top."""

    def __init__(self, columns_per_row: float) -> None:
        width = FIELD_CM * columns_per_row
        columns = max(16, round(_CANVAS_ROWS * columns_per_row))
        self.x = ((np.arange(columns, dtype=np.float32) + 0.5) / columns - 0.5)[
            None, :
        ] * np.float32(width)
        self.y = (
            (np.arange(_CANVAS_ROWS, dtype=np.float32) + 0.5) * np.float32(FIELD_CM / _CANVAS_ROWS)
        )[:, None]
        self.attenuation: Image = np.zeros((_CANVAS_ROWS, columns), np.float32)

    def along_y(self, points: Points) -> Image:
        """A quantity that changes with height, as a smooth column (rows, 1)."""
        column = np.interp(self.y[:, 0], [y for y, _ in points], [value for _, value in points])
        kernel = np.hanning(41)
        padded = np.pad(column, 20, mode="edge")
        return np.convolve(padded, kernel / kernel.sum(), "valid").astype(np.float32)[:, None]

    def ellipse(
        self,
        x: float,
        y: float,
        radii: tuple[float, float],
        tilt: float = 0.0,
        softness: float = 0.08,
    ) -> Image:
        """Mask in [0, 1] of an ellipse, centimetres and radians.

        `softness` is relative to the radius.
        """
        c = np.float32(np.cos(tilt))
        s = np.float32(np.sin(tilt))
        u = ((self.x - x) * c + (self.y - y) * s) / radii[0]
        v = ((self.y - y) * c - (self.x - x) * s) / radii[1]
        return soft(1 - np.sqrt(u * u + v * v), softness)

    def tube(
        self,
        centre_y: Image,
        thickness: float,
        within: tuple[float, float],
        mirrored: bool,
        weight: float = 1.0,
    ) -> None:
        """Add a bone that follows y = `centre_y` (1, columns) where `within` holds |x| (mirrored) or x: dense rim, softer core."""
        rows = self._rows_around(centre_y, thickness)
        x = np.abs(self.x) if mirrored else self.x
        slope = np.gradient(centre_y, float(self.x[0, 1] - self.x[0, 0]), axis=1)
        distance = np.abs(self.y[rows] - centre_y) / np.sqrt(1 + slope * slope) / thickness
        profile = np.clip(1 - distance**4, 0, 1) * (0.55 + 0.45 * np.clip(distance, 0, 1) ** 2)
        self.attenuation[rows] += (
            weight * profile * soft(x - within[0], 0.25) * soft(within[1] - x, 0.25)
        )

    def line(self, start: Point, end: Point, widths: tuple[float, float], onto: Image) -> None:
        """Draw a vessel from `start` to `end` that tapers between the two half-widths.

        Where vessels cross, the thicker one counts.
        """
        rows = slice(
            *np.searchsorted(self.y[:, 0], [min(start[1], end[1]) - 1, max(start[1], end[1]) + 1])
        )
        dx = end[0] - start[0]
        dy = end[1] - start[1]
        x = self.x - np.float32(start[0])
        y = self.y[rows] - np.float32(start[1])
        along = np.clip(
            (x * np.float32(dx) + y * np.float32(dy)) / np.float32(dx * dx + dy * dy), 0, 1
        )
        squared = (x - along * np.float32(dx)) ** 2 + (y - along * np.float32(dy)) ** 2
        width = widths[0] + (widths[1] - widths[0]) * along
        onto[rows] = np.maximum(onto[rows], width * np.exp(-squared / (width * width)))

    def _rows_around(self, centre_y: Image, margin: float) -> slice:
        low, high = np.searchsorted(
            self.y[:, 0], [float(centre_y.min()) - margin, float(centre_y.max()) + margin]
        )
        return slice(int(low), int(high))


def soft(distance: Image, softness: float) -> Image:
    """Distance inside a border → mask in [0, 1], with a transition about `softness` wide."""
    mask: Image = np.clip(distance / np.float32(2 * softness) + np.float32(0.5), 0, 1)
    smooth: Image = mask * mask * (3 - 2 * mask)
    return smooth


def enlarge(image: Image, rows: int, columns: int) -> Image:
    """Bilinear interpolation to (rows, columns)."""
    for axis, length in enumerate((rows, columns)):
        place = np.clip(
            (np.arange(length, dtype=np.float32) + 0.5) * (image.shape[axis] / length) - 0.5,
            0,
            image.shape[axis] - 1,
        )
        low = place.astype(np.intp)
        weight = (place - low).reshape((-1, 1) if axis == 0 else (1, -1))
        first = image.take(low, axis)
        second = image.take(np.minimum(low + 1, image.shape[axis] - 1), axis)
        second -= first
        second *= weight
        image = np.add(first, second, out=first)
    return image


def quantum_noise(rng: np.random.Generator, rows: int, columns: int) -> Image:
    """Quantum noise over coarser octaves of texture: about 1/f, as tissue and detector give it."""
    noise = rng.standard_normal((rows, columns), dtype=np.float32)
    noise *= 0.012
    for octave, strength in ((4, 0.008), (16, 0.009), (64, 0.012)):
        coarse = rng.standard_normal((rows // octave + 2, columns // octave + 2), dtype=np.float32)
        noise += enlarge(coarse * np.float32(strength), rows, columns)
    return noise
