"""VOI: the window or table that a specification takes, and its effect. Torch-free.

PS3.3 C.11.2.
"""

from __future__ import annotations

import numpy as np

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.lookup_table import LookupTable
from hilum_preprocessing.header.luts import Voi, Window
from hilum_preprocessing.levels.intensity import stretch
from hilum_preprocessing.levels.tables import Levels, Values
from hilum_preprocessing.spec.source import Source


def apply_voi(levels: Levels, voi: Voi, source: Source, bits_stored: int) -> Levels:
    """Return levels after the VOI from levels after the modality LUT.

    Raises NotAnalysable where the object has none and the specification needs one.
    """
    if source.voi == "none":
        return levels
    match chosen(voi, source):
        case LookupTable() as table:
            return look_up(levels, table)
        case Window() as window:
            return _through_window(levels, window, source, bits_stored)
        case None:
            return _without_voi(levels, source, bits_stored)


def chosen(voi: Voi, source: Source) -> LookupTable | Window | None:
    """Return the window or table that the specification applies.

    None: the object has nothing usable of that kind.
    """
    if source.voi == "none":
        return None
    window = window_of(voi, source)
    lut = _lut_of(voi, source)
    return lut if lut is not None and (window is None or source.voi_prefer == "lut") else window


def window_of(voi: Voi, source: Source) -> Window | None:
    """The window that the specification means; None: the object has no usable one of that kind."""
    match source.voi:
        case "first_window":
            return voi.window
        case "window_index":
            return (
                voi.windows[source.window_index] if source.window_index < len(voi.windows) else None
            )
        case "explanation":
            return voi.explained(source.window_explanation)
        case "fixed" if source.fixed_window is not None:
            return Window(
                source.fixed_window.centre, source.fixed_window.width, source.fixed_window.function
            )
        case _:
            return None


def _lut_of(voi: Voi, source: Source) -> LookupTable | None:
    """A fixed window is the recipe's own, so no table of the object takes its place."""
    return None if source.voi == "fixed" or source.voi_prefer == "window_only" else voi.lut


def look_up(levels: Levels, table: LookupTable) -> Levels:
    """Input below the first entry takes the first, beyond the last the last.

    The output's range is the table's own, not Bits Stored's.
    """
    index = np.clip(
        np.rint(levels.values) - table.first_for(levels.low, levels.high), 0, len(table.entries) - 1
    ).astype(np.intp)
    return levels.with_range(table.entries[index], 0.0, float((1 << table.bits) - 1))


def _through_window(levels: Levels, window: Window, source: Source, bits_stored: int) -> Levels:
    """Map levels to 0..2^BitsStored - 1, or to the range of the modality LUT's output.

    The first is the range of a display of that depth.
    """
    low, high = (
        (levels.low, levels.high)
        if source.window_output == "modality_range"
        else (0.0, float((1 << bits_stored) - 1))
    )
    return levels.with_range(windowed(levels.values, window) * (high - low) + low, low, high)


def _without_voi(levels: Levels, source: Source, bits_stored: int) -> Levels:
    if source.missing_voi == "reject":
        raise NotAnalysable(
            Reason.CORRUPT_HEADER, "no usable window or VOI LUT, and the specification needs one"
        )
    if source.missing_voi == "identity":
        return levels
    highest = float((1 << bits_stored) - 1)
    return stretch(levels, levels.picture.min(), levels.picture.max()).map(
        lambda part: part * highest
    )


def windowed(values: Values, window: Window) -> Values:
    """Return values of any shape in [0, 1], by the window's function.

    PS3.3 C.11.2.1.2.1 (LINEAR), C.11.2.1.3.1 (SIGMOID) and C.11.2.1.3.2 (LINEAR_EXACT).
    """
    centre = window.centre
    width = window.width
    if window.function == "SIGMOID":
        sigmoid: Values = 0.5 * (
            1.0 + np.tanh(2.0 * (values - centre) / width)
        )  # 1 / (1 + exp(-4 (x - c) / w)), no overflow
        return sigmoid
    if window.function == "LINEAR":
        centre = centre - 0.5
        width = width - 1.0
    if width == 0.0:
        return np.where(values <= centre, 0.0, 1.0)
    return np.clip((values - centre) / width + 0.5, 0.0, 1.0)
