"""The grayscale transformations and the displayed area, as the source images have them.

A presentation state replaces those of its images (PS3.4 N.2), so it says them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
from highdicom.content import ReferencedImageSequence
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.valuerep import format_number_as_ds

from hilum.report.presentation_state.lines import fitted
from hilum.report.presentation_state.source_image import SourceDisplay
from hilum_preprocessing.header.lookup_table import LookupTable
from hilum_preprocessing.header.luts import Rescale, Window

Key = TypeVar("Key", bound=tuple[object, ...])
Ranges = Mapping[str, tuple[float, float]]
"""Smallest and largest value of images that have no VOI, by SOP Instance UID."""

_WORDS: Final = 1 << 16
_LONG_STRING: Final = 64  # characters of LO
_LARGEST_WHOLE: Final = 1e15  # 15 digits and a sign
_DESCRIPTOR: Final = 0x00283002
_DATA: Final = 0x00283006
_RANGE: Final = "Range of values"


def add_transforms(state: Dataset, images: Sequence[SourceDisplay], ranges: Ranges) -> None:
    """Write the modules Modality LUT, Softcopy VOI LUT, Displayed Area and Display Shutter.

    The images share modality LUT and polarity. The shutter is written where they share that, too.
    """
    _add_modality(state, images[0])
    if items := _voi_items(images, ranges):
        state.SoftcopyVOILUTSequence = items
    state.DisplayedAreaSelectionSequence = _areas(images)
    shutter = images[0].shutter
    if all(image.shutter == shutter for image in images):
        for keyword, value in shutter.items():
            setattr(state, keyword, value)


def references(images: Sequence[SourceDisplay]) -> list[Dataset]:
    """Return items of a Referenced Image Sequence."""
    return list(ReferencedImageSequence([_named(image) for image in images]))


def _named(image: SourceDisplay) -> Dataset:
    item = Dataset()
    item.SOPClassUID = image.sop_class_uid
    item.SOPInstanceUID = image.sop_instance_uid
    return item


def _add_modality(state: Dataset, image: SourceDisplay) -> None:
    match image.modality:
        case Rescale(slope, intercept):
            state.RescaleIntercept = _decimal(intercept)
            state.RescaleSlope = _decimal(slope)
            state.RescaleType = image.rescale_type
        case LookupTable() as table:
            item = _table(table)
            item.ModalityLUTType = image.rescale_type
            state.ModalityLUTSequence = [item]


def _table(table: LookupTable, *, is_stretched: bool = False) -> Dataset:
    """Return an item with entries of 16 bits: a presentation state has no others but 8.

    `is_stretched`: the entries keep their share of the range. The sign of the first input is that
    of its VR.
    """
    item = Dataset()
    factor = (_WORDS - 1) / (2**table.bits - 1) if is_stretched else 1.0
    descriptor = [len(table.entries) % _WORDS, table.first, 16]
    is_signed = table.first < 0
    if is_signed and descriptor[0] >= _WORDS // 2:
        descriptor[0] -= _WORDS
    item.add(DataElement(_DESCRIPTOR, "SS" if is_signed else "US", descriptor))
    item.add(DataElement(_DATA, "OW", np.rint(table.entries * factor).astype("<u2").tobytes()))
    return item


def _voi_items(images: Sequence[SourceDisplay], ranges: Ranges) -> list[Dataset]:
    """Return an item for each VOI; without one an image is shown in its full range of bits."""
    made = [(image, _voi(image, ranges.get(image.sop_instance_uid))) for image in images]
    shown = [image for image, item in made if item is not None]
    of = {image.sop_instance_uid: item for image, item in made if item is not None}
    return [
        _scoped(of[same[0].sop_instance_uid], same, images)
        for same in _grouped(shown, lambda image: (of[image.sop_instance_uid].to_json(),))
    ]


def _voi(image: SourceDisplay, range_of: tuple[float, float] | None) -> Dataset | None:
    """Return the first window, else the VOI LUT, as the result sheet shows the image."""
    voi = image.voi
    if voi.window is not None:
        said = fitted(voi.explanations[0], _LONG_STRING) if voi.explanations else ""
        return _window(voi.window, said)
    if voi.lut is not None:
        item = Dataset()
        item.VOILUTSequence = [_table(voi.lut, is_stretched=True)]
        return item
    if range_of is None:
        return None
    low, high = range_of
    # C.11.2.1.2.1: of LINEAR, from centre - 0.5 - (width - 1) / 2 to centre - 0.5 + (width - 1) / 2
    return _window(Window((low + high) / 2 + 0.5, high - low + 1), _RANGE)


def _window(window: Window, explanation: str) -> Dataset:
    item = Dataset()
    item.WindowCenter = _decimal(window.centre)
    item.WindowWidth = _decimal(window.width)
    if explanation:
        item.WindowCenterWidthExplanation = explanation
    if window.function != "LINEAR":
        item.VOILUTFunction = window.function
    return item


def _areas(images: Sequence[SourceDisplay]) -> list[Dataset]:
    """Return an item for each size and shape of pixels: the whole picture."""
    groups = _grouped(images, lambda item: (item.columns, item.rows, item.spacing, item.aspect))
    return [_scoped(_area_of(same[0]), same, images) for same in groups]


def _area_of(image: SourceDisplay) -> Dataset:
    item = Dataset()
    item.DisplayedAreaTopLeftHandCorner = [1, 1]
    item.DisplayedAreaBottomRightHandCorner = [image.columns, image.rows]
    item.PresentationSizeMode = "SCALE TO FIT"
    if image.spacing is None:
        item.PresentationPixelAspectRatio = list(image.aspect)
    else:
        item.PresentationPixelSpacing = [_decimal(side) for side in image.spacing]
    return item


def _scoped(
    item: Dataset, same: Sequence[SourceDisplay], images: Sequence[SourceDisplay]
) -> Dataset:
    """Name the images of an item that is not for all."""
    if len(same) < len(images):
        item.ReferencedImageSequence = references(same)
    return item


def _grouped(
    images: Sequence[SourceDisplay], key_of: Callable[[SourceDisplay], Key]
) -> list[list[SourceDisplay]]:
    groups: dict[Key, list[SourceDisplay]] = {}
    for image in images:
        groups.setdefault(key_of(image), []).append(image)
    return list(groups.values())


def _decimal(value: float) -> str:
    """DS: whole numbers without a point, at most 16 characters."""
    whole = float(value)
    is_whole = whole.is_integer() and abs(whole) < _LARGEST_WHOLE
    return str(int(whole)) if is_whole else format_number_as_ds(whole)
