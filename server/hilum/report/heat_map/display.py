"""A stored object as a person looks at it, and where the model saw it. Torch-free."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hilum.report.heat_map.choice import HeatMapLeftOut
from hilum.store.archive.memory_file import held_in_memory
from hilum_preprocessing import InputSpec, NotAnalysable, StoredValues, decoding_for, read_file
from hilum_preprocessing.levels.display import display_levels
from hilum_preprocessing.spec.placement import Placement, place
from hilum_preprocessing.spec.sizing import geometry_of

Grey = NDArray[np.uint8]


def grey_levels(
    source: Path | bytes, spec: InputSpec, maximum_pixels: int
) -> tuple[Grey, Placement]:
    """Return pixels (rows, columns), white is bright, and the place of the tensor in them.

    A picture that the specification turns upright is shown upright, as its cells are. Raises
    HeatMapLeftOut when the file is gone or cannot be shown.
    """
    try:
        with nullcontext(source) if isinstance(source, Path) else held_in_memory(source) as path:
            dataset = read_file(path)
        stored = replace(decoding_for(dataset, spec), reduce=0).of(dataset, maximum_pixels)
        return displayed(stored), place(
            geometry_of(spec, stored.size, stored.pixel_aspect), stored.size
        )
    except FileNotFoundError:
        raise HeatMapLeftOut("The stored object is gone from the archive.") from None
    except OSError as error:
        raise HeatMapLeftOut(f"The stored object cannot be read ({error.strerror}).") from None
    except NotAnalysable as error:
        raise HeatMapLeftOut(f"The image cannot be shown ({error.reason.value}).") from None


def displayed(stored: StoredValues) -> Grey:
    """Through the object's own window, else its VOI LUT; padding like all other pixels."""
    return display_levels(stored, "window", is_padding_black=False)
