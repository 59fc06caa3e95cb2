"""Contributing Equipment Sequence (PS3.3 C.12.1.1.5): what made the image, the release, the program."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.tag import Tag
from pydicom.valuerep import DT

from hilum.domain import Release, Result
from hilum.report.maker import contribution_datetime, contribution_description
from hilum.report.template.cutting import Template, cut_element, cut_item, item
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


@dataclass(frozen=True, slots=True)
class Equipment:
    """The items: the acquisition's, which ends with what stands fast, the release's, and highdicom's own."""

    acquisition: Template
    acquisition_end: bytes
    release: Template
    library: bytes

    def fill(self, result: Result, release: Release, created: datetime, image: Dataset) -> bytes:
        """The three items; two if the header of `image` names no device that highdicom would take."""
        ours = self.release.fill(text(contribution_datetime(created)), text(contribution_description(result, release)))
        return self._acquisition(image) + ours + self.library

    def _acquisition(self, image: Dataset) -> bytes:
        device = [image[keyword] for keyword in _BEFORE if keyword in image]
        if not image.get("Manufacturer") or any("\\" in value for element in device for value in _values(element)):
            return b""
        try:
            moment = _moment(image)
        except ValueError:
            return b""
        return self.acquisition.fill(encoded([*device, *moment]) + self.acquisition_end)


def _values(element: DataElement) -> list[str]:
    return [element.value] if isinstance(element.value, str) else list(element.value or [])


def _moment(image: Dataset) -> list[DataElement]:
    """Raises ValueError as highdicom does, whose answer is to leave the device out."""
    value = image.get("AcquisitionDateTime")
    return [] if value is None else [DataElement(_CONTRIBUTED, "DT", DT(value))]


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
