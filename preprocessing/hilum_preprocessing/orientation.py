r"""Which way up a picture is, by Patient Orientation (PS3.3 C.7.6.1.1.1). Torch-free.

The first value is the direction in which rows run, the second that of columns: letters of the
patient's left, right, anterior, posterior, head and foot, the principal one first. A frontal view
is shown as one faces the patient: L\F. Values that are no such letters, or two of one axis, mean
nothing.

Field of View Rotation and Horizontal Flip (PS3.3 C.8.11.4) tell how the stored picture came about,
so Patient Orientation holds them already. Image Orientation (Patient) is no part of radiographs;
converters fill it with that of a transverse slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from pydicom.dataset import Dataset

from hilum_preprocessing.elements import says, words
from hilum_preprocessing.errors import Flag, NotAnalysable

if TYPE_CHECKING:
    from hilum_preprocessing.decode import StoredValues
    from hilum_preprocessing.source import Source
    from hilum_preprocessing.views import View

_AXES: Final[Mapping[str, str]] = {"L": "LR", "R": "LR", "A": "AP", "P": "AP", "H": "HF", "F": "HF"}
# Some writers spell the letters out.
_WORDS: Final = frozenset({"LEFT", "RIGHT", "ANTERIOR", "POSTERIOR", "HEAD", "FOOT", "FEET"})
_FRONTAL: Final = frozenset({"LR", "HF"})


@dataclass(frozen=True, slots=True)
class Directions:
    """The principal letter of the direction of rows, and of columns; "" where nothing is said."""

    rows: str = ""
    columns: str = ""

    @property
    def axes(self) -> tuple[str, str]:
        """LR, AP, HF or "" of both."""
        return _AXES.get(self.rows, ""), _AXES.get(self.columns, "")


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


def directions_of(dataset: Dataset) -> Directions:
    """What Patient Orientation says.

    Nothing where it is malformed, contradicts itself, or is that of a quadruped.
    """
    if says(dataset, "AnatomicalOrientationType", "QUADRUPED"):
        return Directions()
    try:
        values = words(dataset, "PatientOrientation")
    except NotAnalysable:
        return Directions()
    if any(values[2:]) or not all(value == "" or _is_direction(value) for value in values[:2]):
        return Directions()
    found = Directions(*(value[:1] for value in values[:2]))
    return Directions() if found.axes[0] == found.axes[1] else found


def _is_direction(value: str) -> bool:
    """One to three letters, no two of them of one axis, or one of them as a word."""
    if value in _WORDS:
        return True
    axes = [_AXES.get(letter, "") for letter in value]
    return "" not in axes and len(set(axes)) == len(axes)


def turn_of(dataset: Dataset, view: View) -> Turn | None:
    r"""What makes a frontal view L\F. None.

    It is so already, or nothing says for certain what it is.

    Of a picture from the side only head and foot would be certain: its rows run to A or to P.
    """
    found = directions_of(dataset)
    if view == "LATERAL" or set(found.axes) != _FRONTAL:
        return None
    is_transposed = found.axes[0] == "HF"
    across, down = (found.columns, found.rows) if is_transposed else (found.rows, found.columns)
    turn = Turn(is_transposed, reverses_rows=down == "H", reverses_columns=across == "R")
    return None if turn == Turn(False, False, False) else turn  # noqa: FBT003 - no turn at all


def orientation_flags(dataset: Dataset, source: Source, view: View) -> tuple[Flag, ...]:
    """That the picture was turned, or how it lies otherwise than usual. Never raises."""
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
