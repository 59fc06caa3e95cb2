"""The range of values of an image without a window, which a viewer would find for itself."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from hilum.report.context import HeatMapSources
from hilum.store.archive.memory_file import held_in_memory
from hilum_preprocessing import InputSpec, NotAnalysable, StoredValues, decoding_for, read_file
from hilum_preprocessing.header.lookup_table import LookupTable
from hilum_preprocessing.header.luts import Rescale


def value_range(uid: str, sources: HeatMapSources, spec: InputSpec) -> tuple[float, float] | None:
    """Return the smallest and largest value after the modality LUT, without padding.

    None: the pixels are gone, cannot be decoded, or are all alike.
    """
    picture = sources.pictures.get(uid)
    if sources.obstacle or picture is None or picture.path is None:
        return None
    source = picture.path
    try:
        with nullcontext(source) if isinstance(source, Path) else held_in_memory(source) as path:
            dataset = read_file(path)
        stored = replace(decoding_for(dataset, spec), reduce=0).of(dataset, sources.maximum_pixels)
    except (OSError, NotAnalysable):
        return None
    return _range(stored)


def _range(stored: StoredValues) -> tuple[float, float] | None:
    values = stored.array
    if stored.padding is not None:
        first, last = stored.padding
        values = values[(values < first) | (values > last)]
    if not values.size:
        return None
    ends = np.array([values.min(), values.max()], np.float64)
    match stored.modality:
        case Rescale(slope, intercept):
            ends = ends * slope + intercept
        case LookupTable() as table:
            places = np.unique(values).astype(np.int64) - table.first_for(*ends)
            ends = table.entries[np.clip(places, 0, len(table.entries) - 1)]
    low = float(ends.min())
    high = float(ends.max())
    return (low, high) if high > low else None
