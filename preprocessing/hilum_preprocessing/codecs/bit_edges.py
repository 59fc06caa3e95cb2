"""Neighbouring pixels that differ in the bits beside the stored ones. Torch-free.

Does the picture go on there without these bits, or with them?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.header.pixel_header import PixelHeader

_ROWS_AT_ONCE: Final = 64
# Blocks are read in this stride, so that the first ones spread over the height of the picture.
_STRIDE: Final = 7
# An overlay's edge may cross an edge of the picture, but most of it does not.
_NEAR_SHARE: Final = 0.9
_LIKELY_SHARE: Final = 0.25  # also reached in pictures with much noise
_TIMES_LIKELIER: Final = 4  # where one case is certain, pairs of the other one are rare


@dataclass(slots=True)
class BitEdges:
    """Pairs of neighbours whose bits beside the stored ones differ.

    `count` of them, and how many are `near` in the cleared picture, by less than a quarter of the
    range. `judged` have a pair beside them that is none of these, and says how smooth the picture
    is there. Of those, `smooth` ones are in the cleared picture; `continued` ones are smooth with
    the bits left in, and a jump with the bits cleared.
    """

    count: int = 0
    near: int = 0
    judged: int = 0
    smooth: int = 0
    continued: int = 0

    @property
    def are_of_an_overlay(self) -> bool:
        """The picture goes on where the bits are cleared."""
        is_likely = self.smooth >= max(
            _LIKELY_SHARE * self.judged, _TIMES_LIKELIER * self.continued, 1
        )
        return is_likely and self.near >= _NEAR_SHARE * self.count

    @property
    def are_of_the_picture(self) -> bool:
        """The picture goes on where the bits are left in, and jumps where they are cleared."""
        return self.continued >= max(_LIKELY_SHARE * self.judged, _TIMES_LIKELIER * self.smooth, 1)


def bit_edges(
    whole: NDArray[Any], cleared: NDArray[Any], header: PixelHeader, enough: int | None = None
) -> BitEdges:
    """Count the crossings of a picture, `whole` with the bits left in, `cleared` without.

    Both are (rows, columns) or (rows, columns, samples). It stops after `enough` judged ones.
    """
    seen = BitEdges()
    exact: Any = np.int64 if whole.itemsize > 2 else np.int32
    for rows in _blocks(len(whole)):
        block = whole[rows].astype(exact)
        below = cleared[rows].astype(exact)
        beside = (block - below) >> header.bits_stored
        if beside.max() == beside.min():
            continue
        for axis in (0, 1):
            whole_part, cleared_part, beside_part = (
                np.moveaxis(part, axis, 0) for part in (block, below, beside)
            )
            _count(seen, whole_part, cleared_part, beside_part, 1 << header.bits_stored)
        if enough is not None and seen.judged >= enough:
            break
    return seen


def _blocks(rows: int) -> Iterator[slice]:
    """All over the picture from the first ones on.

    With a row in common, so that no pair is left out.
    """
    starts = range(0, max(1, rows - 1), _ROWS_AT_ONCE)
    return (
        slice(row, row + _ROWS_AT_ONCE + 1)
        for first in range(_STRIDE)
        for row in starts[first::_STRIDE]
    )


def _count(
    seen: BitEdges, whole: NDArray[Any], cleared: NDArray[Any], beside: NDArray[Any], span: int
) -> None:
    """Pairs along the first axis."""
    is_edge = np.diff(beside, axis=0) != 0
    step, whole_step = (np.abs(np.diff(part, axis=0)) for part in (cleared, whole))
    around = _steps_around(step, is_edge)
    # A step of the whole span is that from black to white, too.
    is_judged = is_edge & (around >= 0) & (step < span - 1)
    likely = 2 * around
    seen.count += int(is_edge.sum())
    seen.near += int((is_edge & (step < span // 4)).sum())
    seen.judged += int(is_judged.sum())
    seen.smooth += int((is_judged & (step <= likely)).sum())
    seen.continued += int((is_judged & (whole_step <= likely) & (step > span // 2)).sum())


def _steps_around(step: NDArray[Any], is_edge: NDArray[Any]) -> NDArray[Any]:
    """Of each pair the larger step of the pairs on either side; -1: both of these are edges."""
    quiet = np.full((len(step) + 2, *step.shape[1:]), -1, step.dtype)
    quiet[1:-1] = np.where(is_edge, -1, step)
    return np.asarray(np.maximum(quiet[:-2], quiet[2:]))
