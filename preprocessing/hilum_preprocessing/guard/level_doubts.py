"""Doubts about the grey levels of one specification, from the header. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.errors import Flag
from hilum_preprocessing.header.lookup_table import LookupTable
from hilum_preprocessing.header.luts import ModalityLut, Rescale, Voi, Window
from hilum_preprocessing.levels.tables import Values
from hilum_preprocessing.levels.voi import chosen, windowed
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.reduction import takes_statistics
from hilum_preprocessing.spec.source import Source

_LEAST_SHARE: Final = 1 / 8  # 12 bits under a window of 16 have a 16th of the range
_LEAST_BETWEEN: Final = 1 / 10  # of the pixels; 8 bits over 12 leave a 16th of a ramp
_SAMPLES: Final = 96  # along an axis, about
_GREY: Final = 1 / 256  # the distance from black or white that a display of 8 bits shows

Ends = tuple[float, float]


def level_flags(stored: StoredValues, spec: InputSpec) -> tuple[str, ...]:
    """Flags of modality LUT, VOI, padding and polarity, where the specification uses them.

    Never raises.
    """
    source = spec.source
    seen = {
        Flag.VOI_UNUSABLE: _is_voi_unusable(stored.voi, source),
        Flag.VOI_DOUBTFUL: _leaves_little(stored, source),
        **dict.fromkeys(_flags_of_tables(stored, source), True),
        Flag.PADDING_UNUSABLE: (
            stored.is_padding_unusable and source.padding != "keep" and takes_statistics(spec)
        ),
        Flag.POLARITY_DOUBTFUL: _is_polarity_doubtful(stored, source),
    }
    return tuple(flag.value for flag, is_seen in seen.items() if is_seen)


def _is_voi_unusable(voi: Voi, source: Source) -> bool:
    """The object offers a window or table against the rules, or the window that is meant is one."""
    if source.voi in ("none", "fixed"):
        return False
    is_window_broken = (
        source.voi == "window_index"
        and None in voi.windows[source.window_index : source.window_index + 1]
    )
    return (
        voi.is_unusable or is_window_broken or (chosen(voi, source) is None and None in voi.windows)
    )


def _leaves_little(stored: StoredValues, source: Source) -> bool:
    """Return whether the object's window leaves hardly any range or hardly any grey.

    Grey: pixels between black and white. Such a window belongs to other pixels. Both ends decide,
    because windows rise throughout. A modality LUT that is a table may not rise, and is not
    examined.
    """
    window = None if source.voi == "fixed" else chosen(stored.voi, source)
    modality = stored.modality if source.modality_lut == "apply" else None
    if not isinstance(window, Window) or not isinstance(modality, Rescale | None):
        return False
    ends = np.array(stored.ends or (stored.array.min(), stored.array.max()), np.float64)
    if np.ptp(windowed(_rescaled(ends, modality), window)) < _LEAST_SHARE:
        return True
    shown = windowed(_rescaled(_sampled(stored), modality), window)
    is_between = (shown > _GREY) & (shown < 1 - _GREY)
    return bool(is_between.mean() < _LEAST_BETWEEN)


def _sampled(stored: StoredValues) -> Values:
    """Every so many rows and columns."""
    rows, columns = (max(1, length // _SAMPLES) for length in stored.array.shape)
    return stored.array[::rows, ::columns].astype(np.float64)


def _rescaled(values: Values, modality: Rescale | None) -> Values:
    return values if modality is None else modality.slope * values + modality.intercept


def _flags_of_tables(stored: StoredValues, source: Source) -> tuple[Flag, ...]:
    """Of the tables that are applied. A depth counts where its range becomes that of the levels."""
    modality = stored.modality if source.modality_lut == "apply" else None
    voi = chosen(stored.voi, source)
    has_range_of_modality = voi is None or (
        isinstance(voi, Window) and source.window_output == "modality_range"
    )
    inputs = _possible(stored)
    return (
        *_flags_of(modality, inputs, is_range_used=has_range_of_modality),
        *_flags_of(voi, _after(modality, inputs), is_range_used=True),
    )


def _flags_of(table: object, inputs: Ends, *, is_range_used: bool) -> Iterator[Flag]:
    if not isinstance(table, LookupTable):
        return
    if table.count_flag is not None:
        yield table.count_flag
    if table.depth_flag is not None and is_range_used:
        yield table.depth_flag
    if table.is_shifted(*inputs):
        yield Flag.LUT_DOUBTFUL


def _possible(stored: StoredValues) -> Ends:
    """Return the smallest and largest value that Bits Stored can hold."""
    half = 1 << stored.bits_stored - 1
    return (-half, half - 1) if stored.is_signed else (0, 2 * half - 1)


def _after(modality: ModalityLut, inputs: Ends) -> Ends:
    """The possible outputs of a modality LUT."""
    match modality:
        case LookupTable():
            return 0, (1 << modality.bits) - 1
        case Rescale():
            low, high = sorted(modality.slope * end + modality.intercept for end in inputs)
            return low, high
        case _:
            return inputs


def _is_polarity_doubtful(stored: StoredValues, source: Source) -> bool:
    """Photometric Interpretation and Presentation LUT Shape contradict each other (PS3.3 C.8.11.3).

    Only where one of them decides.
    """
    is_acted_on = source.monochrome1 != "ignore" or source.presentation_lut == "honour"
    shape = stored.presentation_lut_shape
    return (
        is_acted_on
        and shape in ("IDENTITY", "INVERSE")
        and (shape == "INVERSE") != stored.is_monochrome1
    )
