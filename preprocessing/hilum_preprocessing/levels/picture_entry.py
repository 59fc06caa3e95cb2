"""Where the pixels of a PNG or JPEG file enter a specification. Torch-free.

A file has no modality LUT, no window and no polarity of its own: 0 is black. Where a data set's
authors made files of 8 bits of DICOM objects, and the models were trained on the files, the steps
that made them are skipped. All other steps are those of the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.operations import (
    EqualizeHist,
    IntensityOp,
    Invert,
    Maxval,
    MinMax,
    Percentile,
    ToUint8,
)

_GREY_LEVELS: Final[Mapping[int, tuple[IntensityOp, ...]]] = {
    8: (Maxval("bits"), ToUint8("round")),
    16: (Maxval(255.0 * 256.0), ToUint8("truncate")),
}
"""Whole grey levels of a file's pixels, by their bits: 8 as they are, of 16 the high byte.

OpenCV reads a PNG file of 16 bits so, and with it the loaders of CheXzero and jfhealthcare.
"""


def entered(stored: StoredValues, spec: InputSpec) -> InputSpec:
    """The specification as it is, or the one for a picture file.

    Raises NotAnalysable as `picture_spec` does.
    """
    return picture_spec(spec, stored.bits_stored) if stored.is_picture else spec


@lru_cache(64)
def picture_spec(spec: InputSpec, bits: int) -> InputSpec:
    """The specification for the pixels of a file of so many bits, 8 or 16.

    Raises NotAnalysable where the first operation counts on the units of DICOM values.
    """
    source = replace(
        spec.source, voi="none", window_index=0, window_explanation="", fixed_window=None
    )
    skipped = _skipped(spec)
    if not skipped:
        _require_range_of_picture(spec.intensity, bits)
        return replace(spec, source=source)
    rest = spec.intensity[skipped:]
    return replace(spec, source=source, intensity=(*_GREY_LEVELS[bits], *rest))


def _skipped(spec: InputSpec) -> int:
    """How many operations made the files of the training.

    equalize_hist is the last step of how CheXpert's and MIMIC-CXR-JPG's files were made.
    """
    if spec.picture_entry != "auto":
        return spec.picture_entry
    for number, op in enumerate(spec.intensity):
        if isinstance(op, EqualizeHist):
            return number + 1
    return 0


def _require_range_of_picture(intensity: tuple[IntensityOp, ...], bits: int) -> None:
    first = next((op for op in intensity if not isinstance(op, Invert)), None)
    if isinstance(first, MinMax | Percentile) or (
        isinstance(first, Maxval) and first.of in ("bits", "two_to_bits", (1 << bits) - 1)
    ):
        return
    raise NotAnalysable(
        Reason.UNSUPPORTED_PIXEL_FORMAT,
        f"the first operation of the specification is not for pictures of {bits} bits; say where"
        " they enter, with input.picture_entry",
    )
