"""From stored values to the wire tensor on a CPU, by compiled code alone.

The same to the bit as prepare.py through torch. Torch-free.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.levels.grayscale import level_table
from hilum_preprocessing.resize.axes import axes_of
from hilum_preprocessing.resize.compiled import (
    extremes,
    has_halves,
    into_halves,
    resized,
    resized_whole,
)
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.operations import Resize
from hilum_preprocessing.tensor.stored_samples import level_extremes, line_for, samples_of
from hilum_preprocessing.tensor.visible import Visible, visible

_AS_IS: Final = (1.0, 0.0)
"""Slope and offset of levels that need no step after the resize."""
_NO_LIMITS: Final = (-math.inf, math.inf)
_COMPILED: Final = {("float", "fp16"), ("uint8_rounded", "uint8")}
"""The arithmetic of a resize and the wire type that are compiled together."""


def prepared(
    stored: StoredValues, spec: InputSpec
) -> NDArray[np.float16] | NDArray[np.uint8] | None:
    """Return (1, height, width) fp16 or uint8 as the specification says, or None.

    None: it takes more than one resize after the first crops, or a step that is not compiled here.
    Raises NotAnalysable.
    """
    if spec.order != "intensity_first" or not has_halves():
        return None
    part = visible(stored, spec)
    op = _only_resize(part)
    if op is None or (op.compute, spec.wire_dtype) not in _COMPILED:
        return None
    ends = stored.ends or extremes(stored.array)
    image = None if ends is None else _resized(stored, spec, part, op, ends)
    return None if image is None else image[None]


def _only_resize(part: Visible) -> Resize | None:
    """The resize that is the only operation after the first crops."""
    op = part.operations[0] if len(part.operations) == 1 else None
    return op if isinstance(op, Resize) else None


def _resized(
    stored: StoredValues, spec: InputSpec, part: Visible, op: Resize, ends: tuple[int, int]
) -> NDArray[Any] | None:
    array = part.within(stored.array)
    table = level_table(stored, spec, ends)
    line = line_for(table, ends, is_uint8=spec.is_uint8)
    samples = samples_of(array, table, line, is_uint8=spec.is_uint8)
    rows, columns = axes_of(op, part.size, part.grids)
    if op.compute == "uint8_rounded":
        return resized_whole(samples, rows, columns)
    made = resized(samples, rows, columns)
    if made is None or made.ends is None:
        return None
    limits = level_extremes(array, table, made.ends) if op.clip_to_input else _NO_LIMITS
    left_out = None if spec.is_uint8 else line
    return into_halves(made, (left_out.slope, left_out.offset) if left_out else _AS_IS, limits)
