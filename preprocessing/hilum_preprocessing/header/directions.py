r"""Patient Orientation: the directions in which rows and columns run (PS3.3 C.7.6.1.1.1).

The first value is the direction of rows, the second that of columns: letters of the patient's left,
right, anterior, posterior, head and foot, the principal one first. Values that are no such letters,
or two of one axis, mean nothing. Torch-free.

Field of View Rotation and Horizontal Flip (PS3.3 C.8.11.4) tell how the stored picture came about,
so Patient Orientation holds them already. Image Orientation (Patient) is no part of radiographs;
converters fill it with that of a transverse slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydicom.dataset import Dataset

from hilum_preprocessing.errors import NotAnalysable
from hilum_preprocessing.header.elements import says, words

_AXES: Final[Mapping[str, str]] = {"L": "LR", "R": "LR", "A": "AP", "P": "AP", "H": "HF", "F": "HF"}
# Some writers spell the letters out.
_WORDS: Final = frozenset({"LEFT", "RIGHT", "ANTERIOR", "POSTERIOR", "HEAD", "FOOT", "FEET"})


@dataclass(frozen=True, slots=True)
class Directions:
    """The principal letter of the direction of rows, and of columns; "" where nothing is said."""

    rows: str = ""
    columns: str = ""

    @property
    def axes(self) -> tuple[str, str]:
        """LR, AP, HF or "" of both."""
        return _AXES.get(self.rows, ""), _AXES.get(self.columns, "")


def directions_of(dataset: Dataset) -> Directions:
    """The directions of Patient Orientation.

    None where it is malformed, contradicts itself, or is that of a quadruped.
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
