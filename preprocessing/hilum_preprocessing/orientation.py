r"""Which way up a picture is, and the turn that makes it upright (PS3.3 C.7.6.1.1.1).

A frontal view is shown as one faces the patient: L\F. Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from pydicom.dataset import Dataset

from hilum_preprocessing.errors import Flag
from hilum_preprocessing.header.directions import directions_of

if TYPE_CHECKING:
    from hilum_preprocessing.decode import StoredValues
    from hilum_preprocessing.header.views import View
    from hilum_preprocessing.spec.source import Source

_FRONTAL: Final = frozenset({"LR", "HF"})


@dataclass(frozen=True, slots=True)
class Turn:
    """From a stored picture to an upright one.

    Rows and columns change places, then are reversed.
    """

    is_transposed: bool
    reverses_rows: bool
    reverses_columns: bool

    def of(self, stored: StoredValues) -> StoredValues:
        """The picture turned, with its pixels' aspect. Not for one that was decoded reduced."""
        array = stored.array.T if self.is_transposed else stored.array
        array = array[:: -1 if self.reverses_rows else 1, :: -1 if self.reverses_columns else 1]
        aspect = stored.pixel_aspect
        if self.is_transposed and aspect is not None:
            aspect = 1.0 / aspect
        return replace(stored, array=np.ascontiguousarray(array), pixel_aspect=aspect)


def turn_of(dataset: Dataset, view: View) -> Turn | None:
    r"""Return the turn that makes a frontal view L\F, or None.

    None: it is so already, or its orientation is not certain. Of a picture from the side only head
    and foot would be certain: its rows run to A or to P.
    """
    found = directions_of(dataset)
    if view == "LATERAL" or set(found.axes) != _FRONTAL:
        return None
    is_transposed = found.axes[0] == "HF"
    across, down = (found.columns, found.rows) if is_transposed else (found.rows, found.columns)
    turn = Turn(is_transposed, reverses_rows=down == "H", reverses_columns=across == "R")
    return None if turn == Turn(False, False, False) else turn  # noqa: FBT003 - no turn at all


def orientation_flags(dataset: Dataset, source: Source, view: View) -> tuple[Flag, ...]:
    """Return the flag that the picture was turned, or the flags of an unusual orientation.

    Never raises.
    """
    if source.orientation == "patient" and turn_of(dataset, view) is not None:
        return (Flag.ORIENTATION_CORRECTED,)
    found = directions_of(dataset)
    across, down = found.axes
    seen = {
        Flag.ORIENTATION_TURNED: across == "HF" or down in ("LR", "AP"),
        Flag.ORIENTATION_UPSIDE_DOWN: found.columns == "H",
        Flag.ORIENTATION_MIRRORED: found.rows == "R" and view != "LATERAL",
        Flag.ORIENTATION_LATERAL: across == "AP" and view in ("PA", "AP"),
    }
    return tuple(flag for flag, is_seen in seen.items() if is_seen)
