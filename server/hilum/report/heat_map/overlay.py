"""Cells as colour over a grey picture (numpy alone).

Colour and cover rise together, so a weak cell is faint and no cell hides the image. Only evidence
for the finding is coloured: cells that lower the logit stay grey, and the words on the sheet say
so.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.spec.placement import Placement, PlacementAxis

Array = NDArray[np.float32]
Colours = NDArray[np.uint8]

# Strength to (red, green, blue, cover). Amber, red, magenta: no grey is like one of them, and they
# differ on black as on white.
_STOPS: Final = (0.0, 0.35, 0.7, 1.0)
_STOP_COLOURS: Final = np.array(
    [[255, 190, 0, 0.0], [255, 140, 0, 0.38], [255, 40, 30, 0.46], [255, 0, 170, 0.55]]
)
_STEPS: Final = 512
_RAMP: Final = np.stack(
    [np.interp(np.linspace(0, 1, _STEPS), _STOPS, column) for column in _STOP_COLOURS.T], axis=-1
).astype(np.float32)
_DIMMED: Final = 0.45  # share of the brightness of the part that was not analysed
_HATCH_PERIOD = 14
_HATCH_WIDTH = 2
_HATCH_GREY: Final = 120.0


def spread(cells: Array, placement: Placement, shape: tuple[int, int]) -> Array:
    """Interpolate (h, w) cells to (rows, columns) of a picture of the whole source.

    Bilinear, align_corners=False; 0 outside of the analysed part.
    """
    down = _weights(placement.rows, cells.shape[0], shape[0])
    across = _weights(placement.columns, cells.shape[1], shape[1])
    values: Array = (down @ cells @ across.T).astype(np.float32, copy=False)
    return np.where(analysed(placement, shape), values, np.float32(0))


def analysed(placement: Placement, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """(rows, columns): which pixels of the picture are in the part that the model saw."""
    rows = _inside(placement.rows, shape[0])
    columns = _inside(placement.columns, shape[1])
    inside: NDArray[np.bool_] = rows[:, None] & columns[None, :]
    return inside


def _source_places(axis: PlacementAxis, pixels: int) -> NDArray[np.float64]:
    """Return where in the source the centre of each pixel of the picture is."""
    return (np.arange(pixels) + 0.5) * axis.source / pixels


def _inside(axis: PlacementAxis, pixels: int) -> NDArray[np.bool_]:
    places = _source_places(axis, pixels)
    return (places >= axis.start) & (places < axis.stop)


def _weights(axis: PlacementAxis, cells: int, pixels: int) -> Array:
    """(pixels, cells): each row mixes two neighbouring cells.

    Beyond the centre of the outermost cell that one stands alone.
    """
    place = (_source_places(axis, pixels) - axis.offset) / axis.scale * cells / axis.target - 0.5
    place = np.clip(place, 0, cells - 1)
    left = np.minimum(np.floor(place).astype(np.intp), max(cells - 2, 0))
    part = place - left
    weights = np.zeros((pixels, cells), np.float32)
    at = np.arange(pixels)
    weights[at, left] += 1 - part
    weights[at, np.minimum(left + 1, cells - 1)] += part
    return weights


def coloured(grey: NDArray[np.uint8], strength: Array) -> Colours:
    """(rows, columns) grey and strength 0..1 → (rows, columns, 3)."""
    ramp = _RAMP[np.rint(strength * (_STEPS - 1)).astype(np.intp)]
    cover = ramp[..., 3:]
    mixed = grey[..., None] * (1 - cover) + ramp[..., :3] * cover
    colours: Colours = np.rint(mixed).astype(np.uint8)
    return colours


def hatched(picture: Colours, inside: NDArray[np.bool_]) -> Colours:
    """The same picture, dimmed and hatched where nothing was analysed."""
    rows, columns = np.indices(inside.shape)
    lines: NDArray[np.bool_] = np.less((rows + columns) % _HATCH_PERIOD, _HATCH_WIDTH)
    dim = np.where(lines[..., None], _HATCH_GREY, picture * _DIMMED)
    return np.where(inside[..., None], picture, np.rint(dim).astype(np.uint8))
