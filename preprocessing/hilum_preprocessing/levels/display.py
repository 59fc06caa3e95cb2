"""Stored values as grey levels that a person looks at. Torch-free."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.errors import NotAnalysable
from hilum_preprocessing.header.luts import NO_VOI
from hilum_preprocessing.levels.grayscale import level_table, without_unusable
from hilum_preprocessing.spec.input_spec import InputSpec, Target
from hilum_preprocessing.spec.operations import IntensityOp, Maxval, MinMax, ToUint8
from hilum_preprocessing.spec.source import Source

Preferred = Literal["lut", "window"]


def display_levels(
    stored: StoredValues, preferred: Preferred, *, is_padding_black: bool
) -> NDArray[np.uint8]:
    """(rows, columns) as a viewer shows them, white is bright.

    Modality LUT, the object's first window or VOI LUT, polarity (PS3.3 C.11). Without a VOI, or
    with one that shows nothing of this picture, from its smallest to its largest value.

    `preferred`: where the object has both; the standard leaves the choice open (C.11.2.1.1).
    Padding is no part of the range (C.7.5.1.1.2); unless it is black, it has the level of its
    stored value.
    """
    stored = without_unusable(stored)
    table = _table(stored, preferred)
    shown: NDArray[np.uint8] = table[stored.array.view(f"u{stored.array.itemsize}")]
    if is_padding_black and stored.padding is not None:
        first, last = stored.padding
        shown[(stored.array >= first) & (stored.array <= last)] = 0
    return shown


def _table(stored: StoredValues, preferred: Preferred) -> NDArray[np.uint8]:
    """The grey level of every word that a pixel may be."""
    if stored.voi.window is not None or stored.voi.lut is not None:
        try:
            return _lookup(stored, preferred, Maxval("bits"))
        except NotAnalysable:
            stored = replace(stored, voi=NO_VOI)
    return _lookup(stored, preferred, MinMax())


def _lookup(stored: StoredValues, preferred: Preferred, scale: IntensityOp) -> NDArray[np.uint8]:
    table = level_table(stored, _specification(preferred, scale))
    return table.lookup(stored.array.dtype, np.uint8)


def _specification(preferred: Preferred, scale: IntensityOp) -> InputSpec:
    """Grey levels alone: no geometry, and a target that is not used."""
    source = Source(
        modality_lut="apply",
        voi="first_window",
        voi_prefer=preferred,
        missing_voi="identity",
        monochrome1="invert",
        padding="exclude_from_stats",
    )
    return InputSpec(
        Target(1, 1, "uint8"),
        intensity=(scale, ToUint8("round")),
        geometry=(),
        views="any",
        source=source,
    )
