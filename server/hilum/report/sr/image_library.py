"""TID 1600 Image Library of radiographs.

highdicom's own fails where a header lacks orientation or spacing, as real CR often does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from highdicom import sr
from pydicom.dataset import Dataset

from hilum.report.headers.header import pair
from hilum.report.sr import codes
from hilum.report.sr.containers import container

_CONTAINS = sr.RelationshipTypeValues.CONTAINS
_ACQUISITION = sr.RelationshipTypeValues.HAS_ACQ_CONTEXT


def image_library(images: Sequence[Dataset]) -> sr.ContainerContentItem:
    """Return the container with one group of all images.

    Each has the descriptors of its header (TID 1602, 1603), and no more.
    """
    group = container(codes.IMAGE_LIBRARY_GROUP, [_entry(image) for image in images])
    return container(codes.IMAGE_LIBRARY, [group])


def _entry(image: Dataset) -> sr.ImageContentItem:
    entry = sr.ImageContentItem(
        name=codes.SOURCE,
        referenced_sop_class_uid=image.SOPClassUID,
        referenced_sop_instance_uid=image.SOPInstanceUID,
        relationship_type=_CONTAINS,
    )
    descriptors = [*modality(image), *size(image), *orientation(image), *spacing(image)]
    if descriptors:
        entry.ContentSequence = sr.ContentSequence(descriptors)
    return entry


def modality(image: Dataset) -> Iterator[sr.ContentItem]:
    """CR or DX, where it is one of them."""
    if name := modality_name(image.get("Modality"), image.get("SOPClassUID")):
        yield sr.CodeContentItem(
            name=codes.MODALITY, value=codes.MODALITIES[name], relationship_type=_ACQUISITION
        )


def modality_name(stated: object, sop_class_uid: object) -> str | None:
    """Return a key of `codes.MODALITIES`.

    It is Modality, where that is one of them, else the modality of the SOP Class; None for others.
    """
    word = str(stated).strip().upper()
    return word if word in codes.MODALITIES else codes.MODALITY_OF_CLASS.get(str(sop_class_uid))


def size(image: Dataset) -> Iterator[sr.ContentItem]:
    """Rows and columns, each where it is a number."""
    for name, keyword in ((codes.ROWS, "Rows"), (codes.COLUMNS, "Columns")):
        if isinstance(value := image.get(keyword), int):
            yield sr.NumContentItem(
                name=name, value=value, unit=codes.PIXELS, relationship_type=_ACQUISITION
            )


def orientation(image: Dataset) -> Iterator[sr.ContentItem]:
    """Both values of Patient Orientation."""
    if found := pair(image, "PatientOrientation"):
        for name, value in zip(
            (codes.ORIENTATION_ROW, codes.ORIENTATION_COLUMN), found, strict=True
        ):
            yield sr.TextContentItem(name=name, value=value, relationship_type=_ACQUISITION)


def spacing(image: Dataset) -> Iterator[sr.ContentItem]:
    """Imager Pixel Spacing is row spacing, then column spacing (PS3.3 10.7.1.3).

    The vertical distance comes first there.
    """
    if found := pair(image, "ImagerPixelSpacing"):
        vertical, horizontal = map(float, found)
        for name, value in (
            (codes.HORIZONTAL_SPACING, horizontal),
            (codes.VERTICAL_SPACING, vertical),
        ):
            yield sr.NumContentItem(
                name=name, value=value, unit=codes.MILLIMETRE, relationship_type=_ACQUISITION
            )
