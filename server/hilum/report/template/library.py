"""TID 1600 Image Library, filled from the headers of the images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydicom.dataset import Dataset

from hilum.report.headers.header import pair
from hilum.report.sr import codes
from hilum.report.sr.image_library import (
    image_library,
    modality,
    modality_name,
    orientation,
    size,
    spacing,
)
from hilum.report.template.cut import Template, cut_item
from hilum.report.template.extract import Extract
from hilum.report.template.values import decimal, double, text, uid


@dataclass(frozen=True, slots=True)
class LibraryTemplate:
    """The container, its entries with and without descriptors, and the descriptors."""

    container: Template
    entry: Template
    bare_entry: Template
    modalities: Mapping[str, bytes]
    sizes: tuple[Template, ...]
    orientations: tuple[Template, ...]
    spacings: tuple[Template, ...]

    def fill(self, images: Sequence[Extract]) -> bytes:
        """The container of `images`."""
        return self.container.fill(b"".join([self._entry(image) for image in images]))

    def _entry(self, image: Extract) -> bytes:
        uids = uid(image.sop_class_uid), uid(image.sop_instance_uid)
        descriptors = b"".join(self._descriptors(image))
        return self.entry.fill(*uids, descriptors) if descriptors else self.bare_entry.fill(*uids)

    def _descriptors(self, image: Extract) -> Iterator[bytes]:
        if name := modality_name(image.get("Modality"), image.sop_class_uid):
            yield self.modalities[name]
        for template, keyword in zip(self.sizes, ("Rows", "Columns"), strict=True):
            if isinstance(value := image.get(keyword), int):
                yield template.fill(decimal(value))
        if found := pair(image, "PatientOrientation"):
            yield from (
                template.fill(text(str(value)))
                for template, value in zip(self.orientations, found, strict=True)
            )
        if found := pair(image, "ImagerPixelSpacing"):
            vertical, horizontal = map(float, found)
            for template, value in zip(self.spacings, (horizontal, vertical), strict=True):
                yield template.fill(decimal(value), double(value))


def compile_library(image: Dataset) -> LibraryTemplate:
    """From an image that has every descriptor."""
    container = image_library([image])
    (group,) = container.ContentSequence
    (entry,) = group.ContentSequence
    names = {
        "ReferencedSOPClassUID": "class",
        "ReferencedSOPInstanceUID": "instance",
        "ContentSequence": "descriptors",
    }
    number = {"NumericValue": "value", "FloatingPointValue": "exact"}
    whole = Template(cut_item(entry, names), *names.values())
    del entry.ContentSequence
    return LibraryTemplate(
        Template(
            cut_item(
                container, {"ContentSequence": cut_item(group, {"ContentSequence": "entries"})}
            ),
            "entries",
        ),
        whole,
        Template(cut_item(entry, names), "class", "instance"),
        {name: _modality(name) for name in codes.MODALITIES},
        tuple(Template(cut_item(item, number), "value") for item in size(image)),
        tuple(
            Template(cut_item(item, {"TextValue": "value"}), "value") for item in orientation(image)
        ),
        tuple(Template(cut_item(item, number), "value", "exact") for item in spacing(image)),
    )


def _modality(name: str) -> bytes:
    image = Dataset()
    image.Modality = name
    (item,) = modality(image)
    return Template(cut_item(item)).fill()
