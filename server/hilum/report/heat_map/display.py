"""A stored object as grey levels that a person can look at.

Modality LUT, VOI LUT, polarity (PS3.3 C.11), then 8 bits. Torch-free.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum.report.heat_map.choice import HeatMapLeftOut
from hilum_preprocessing import InputSpec, NotAnalysable, StoredValues, decoding_for, read_file
from hilum_preprocessing.levels.grayscale import level_table, without_unusable
from hilum_preprocessing.spec.placement import Placement, place
from hilum_preprocessing.spec.sizing import geometry_of

Grey = NDArray[np.uint8]
_COMMON: Final[dict[str, Any]] = {
    "geometry": [
        {
            "op": "resize",
            "height": 8,
            "width": 8,
            "kernel": "pil_bilinear_aa",
            "compute": "uint8_rounded",
        }
    ],  # not used here
    "target": {"height": 8, "width": 8, "dtype": "uint8"},
    "views": "any",
}
# As a viewer shows it: the object's own window, or its VOI LUT.
_OWN_WINDOW: Final = InputSpec.from_mapping(
    {
        **_COMMON,
        "source": {
            "modality_lut": "apply",
            "voi": "first_window",
            "voi_prefer": "window",
            "missing_voi": "reject",
        },
        "intensity": [{"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": "round"}],
    }
)
# Without one, from the darkest to the brightest pixel.
_WHOLE_RANGE: Final = InputSpec.from_mapping(
    {
        **_COMMON,
        "source": {"modality_lut": "apply"},
        "intensity": [{"op": "minmax"}, {"op": "to_uint8", "mode": "round"}],
    }
)


def grey_levels(path: Path, spec: InputSpec, maximum_pixels: int) -> tuple[Grey, Placement]:
    """(rows, columns), white is bright; and where the tensor of this specification lies in it.

    A picture that the specification turns upright is shown upright, as its cells are.
    Raises HeatMapLeftOut when the file is gone or cannot be shown.
    """
    try:
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
    """Through the object's own window.

    One that makes the picture empty, or none, gives way to the whole range.
    """
    stored = without_unusable(stored)
    try:
        table = level_table(stored, _OWN_WINDOW)
    except NotAnalysable:
        table = level_table(stored, _WHOLE_RANGE)
    words = stored.array.view(f"u{stored.array.itemsize}")
    grey: Grey = table.lookup(stored.array.dtype, np.uint8)[words]
    return grey
