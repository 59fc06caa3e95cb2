"""Contributing Equipment Sequence (PS3.3 C.12.1.1.5).

Its items are the device of the image, the release, and the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.tag import Tag
from pydicom.valuerep import DT

from hilum.domain import Release, Result
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.sr.document_header import contribution_datetime, contribution_description
from hilum.report.template.cut import Template, cut_element, cut_item, item
from hilum.report.template.extract import Extract
from hilum.report.template.values import text
from hilum.report.template.writing import encoded

_CONTRIBUTED: Final = Tag("ContributionDateTime")
# In the order of their tags, around Contribution DateTime.
_BEFORE: Final = (
    "Manufacturer",
    "InstitutionName",
    "InstitutionAddress",
    "StationName",
    "InstitutionalDepartmentName",
    "ManufacturerModelName",
    "DeviceSerialNumber",
    "SoftwareVersions",
)
_DEVICE: Final = tuple(int(Tag(keyword)) for keyword in _BEFORE)


@dataclass(frozen=True, slots=True)
class Equipment:
    """The items of acquisition (ending with the constants), of the release, and of highdicom."""

    acquisition: Template
    acquisition_end: bytes
    release: Template
    library: bytes

    def fill(self, result: Result, release: Release, created: datetime, image: Extract) -> bytes:
        """Return the three items; two if highdicom would take no device from `image`."""
        ours = self.release.fill(
            text(contribution_datetime(created)), text(contribution_description(result, release))
        )
        return self._acquisition(image) + ours + self.library

    def _acquisition(self, image: Extract) -> bytes:
        if not image.get("Manufacturer") or any(
            "\\" in value for keyword in _BEFORE for value in _values(image.get(keyword))
        ):
            return b""
        device = [image.elements[tag] for tag in _DEVICE if tag in image.elements]
        try:
            moment = _moment(image.get("AcquisitionDateTime"))
        except ValueError:
            return b""
        return self.acquisition.fill(b"".join([*device, moment, self.acquisition_end]))


def _values(value: str | Sequence[str] | None) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value or ()


def _moment(value: str | None) -> bytes:
    """Raises ValueError as highdicom does, whose answer is to leave the device out."""
    if value is None:
        return b""
    with quietly():
        return encoded([DataElement(_CONTRIBUTED, "DT", DT(value))])


def compile_equipment(report: Dataset) -> Equipment:
    """From a report of an image whose header names its device."""
    acquisition, release, library = report.ContributingEquipmentSequence
    kept = [element for element in acquisition if element.tag > _CONTRIBUTED]
    end = Template([part for element in kept for part in cut_element(element)]).fill()
    names = {"ContributionDateTime": "datetime", "ContributionDescription": "description"}
    return Equipment(
        Template(item(["elements"]), "elements"),
        end,
        Template(cut_item(release, names), *names.values()),
        Template(cut_item(library)).fill(),
    )
