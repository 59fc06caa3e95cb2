"""Lines around the strong part of a class activation map, in pixels of the source (numpy alone)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hilum.report.heat_map.overlay import spread
from hilum_preprocessing.spec.placement import Placement

Points = NDArray[np.float64]
Edge = tuple[int, int, bool]
"""From a sample of the grid to the next in its row (False) or in its column (True)."""

FRACTION: Final = 0.5  # of the maximum: the line joins places that added half as much
_SAMPLES: Final = 128  # of the longer side: a map has seven cells or so
_LINES: Final = 6  # of one map, the largest
_LEAST_BELOW: Final = 1e-6  # of the level: the ring around the samples is just outside
# Of a square of four samples: by which of its corners are inside (1 top left, 2 top right, 4 bottom
# right, 8 bottom left), the sides that the line enters and leaves by. The inside is at its left.
_TOP: Final = 0
_RIGHT: Final = 1
_BOTTOM: Final = 2
_LEFT: Final = 3
_SIDES: Final = {
    1: ((_LEFT, _TOP),),
    2: ((_TOP, _RIGHT),),
    3: ((_LEFT, _RIGHT),),
    4: ((_RIGHT, _BOTTOM),),
    5: ((_LEFT, _TOP), (_RIGHT, _BOTTOM)),
    6: ((_TOP, _BOTTOM),),
    7: ((_LEFT, _BOTTOM),),
    8: ((_BOTTOM, _LEFT),),
    9: ((_BOTTOM, _TOP),),
    10: ((_TOP, _RIGHT), (_BOTTOM, _LEFT)),
    11: ((_BOTTOM, _RIGHT),),
    12: ((_RIGHT, _LEFT),),
    13: ((_RIGHT, _TOP),),
    14: ((_TOP, _LEFT),),
}


def contours_of(cells: NDArray[np.float32], placement: Placement) -> list[Points]:
    """Return closed lines (points, 2) of column and row at `FRACTION` of the map's maximum.

    Cells are interpolated as in the heat map. A line ends where the analysed part ends. The first
    point is also the last. The largest line comes first; none where no cell raised the score.
    """
    rows = placement.rows.source
    columns = placement.columns.source
    factor = min(1.0, _SAMPLES / max(rows, columns))
    shape = (max(2, round(rows * factor)), max(2, round(columns * factor)))
    values = spread(cells, placement, shape).astype(np.float64)
    level = FRACTION * float(values.max())
    if level <= 0:
        return []
    values = np.pad(values, 1, constant_values=level * (1 - _LEAST_BELOW))
    scale = (_places(shape[1], columns), _places(shape[0], rows))
    found = [_placed(line, scale) for line in _lines(values, level)]
    return sorted((line for line in found if _area(line) > 0), key=_area, reverse=True)[:_LINES]


def _places(samples: int, length: int) -> Points:
    """Return the place of each sample in the source: its middle; the ring is at the borders."""
    inner = (np.arange(samples) + 0.5) * length / samples
    return np.concatenate([[0.0], inner, [float(length)]])


def _placed(line: Points, scale: tuple[Points, Points]) -> Points:
    """From places in the grid (column, row) to places in the source."""
    columns, rows = scale
    placed = np.stack(
        [
            np.interp(line[:, 0], np.arange(len(columns)), columns),
            np.interp(line[:, 1], np.arange(len(rows)), rows),
        ],
        axis=1,
    )
    return np.round(placed, 2)


def _area(line: Points) -> float:
    x = line[:, 0]
    y = line[:, 1]
    return abs(float(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1]))) / 2


def _lines(values: Points, level: float) -> Iterator[Points]:
    """Yield closed lines at the level, by marching squares."""
    follows = dict(_steps(values >= level))
    while follows:
        first = edge = next(iter(follows))
        points = []
        while edge in follows:
            points.append(_crossing(edge, values, level))
            edge = follows.pop(edge)
        points.append(_crossing(first, values, level))
        yield np.array(points)


def _steps(inside: NDArray[np.bool_]) -> Iterator[tuple[Edge, Edge]]:
    """Yield each piece of a line as the edge that it comes from and the edge that it goes to."""
    code = inside[:-1, :-1] * 1 + inside[:-1, 1:] * 2 + inside[1:, 1:] * 4 + inside[1:, :-1] * 8
    for row, column in zip(*np.nonzero((code > 0) & (code < 15)), strict=True):
        edges = _edges(int(row), int(column))
        for start, end in _SIDES[int(code[row, column])]:
            yield edges[start], edges[end]


def _edges(row: int, column: int) -> tuple[Edge, Edge, Edge, Edge]:
    return (
        (row, column, False),
        (row, column + 1, True),
        (row + 1, column, False),
        (row, column, True),
    )


def _crossing(edge: Edge, values: Points, level: float) -> tuple[float, float]:
    """Return where the level is on an edge, as column and row of the grid."""
    row, column, is_down = edge
    before = values[row, column]
    after = values[row + 1, column] if is_down else values[row, column + 1]
    part = float((level - before) / (after - before))
    return (column, row + part) if is_down else (column + part, row)
