"""The common header of our DICOM documents.

It holds the time, the release, the program, and the encoding.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from io import BytesIO
from typing import Final

import highdicom as hd
from pydicom import dcmwrite
from pydicom.dataset import Dataset
from pydicom.uid import UID

from hilum.domain import Release, Result, mint_uid
from hilum.report.context import ReportContext
from hilum.report.sr import codes

PRODUCT: Final = "Hilum"
_LONG_STRING: Final = 64


def local(seconds: float, offset: str | None) -> datetime:
    """Return the time in the zone of the images, or in the installation's own."""
    moment = datetime.fromtimestamp(round(seconds, 3), UTC)
    if offset is None:
        return moment.astimezone()
    minutes = int(offset[1:3]) * 60 + int(offset[3:5])
    return moment.astimezone(timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes)))


def algorithm_equipment(
    result: Result, release: Release, created: datetime
) -> hd.ContributingEquipment:
    """Return the release for Contributing Equipment Sequence (IHE AI Results).

    Its Device UID changes with the weights.
    """
    item = hd.ContributingEquipment(
        manufacturer=short(release.manufacturer),
        purpose_of_reference=codes.PROCESSING_EQUIPMENT,
        manufacturer_model_name=short(release.name),
        software_versions=short(release.version),
        contribution_datetime=contribution_datetime(created),
        contribution_description=contribution_description(result, release),
    )
    item.DeviceUID = codes.device_uid(release)
    return item


def contribution_datetime(created: datetime) -> str:
    """DT with its offset from UTC."""
    return created.strftime("%Y%m%d%H%M%S.%f%z")


def contribution_description(result: Result, release: Release) -> str:
    """Return the description of the release in its Contributing Equipment (ST)."""
    state = "trained" if result.is_trained else "untrained weights"
    weights = f"weights sha256 {release.weights_sha256}"
    return f"Processing algorithm: {release.architecture}, {state}, {weights}"[:1024]


def date_and_time(created: datetime) -> tuple[str, str]:
    """DA and TM."""
    return created.strftime("%Y%m%d"), created.strftime("%H%M%S.%f")


def settle_times(document: Dataset, created: datetime) -> None:
    """Replace the attributes in which highdicom puts the time of building.

    A document built again must be the same document.
    """
    document.InstanceCreationDate, document.InstanceCreationTime = (
        document.ContentDate,
        document.ContentTime,
    ) = date_and_time(created)
    del document.ContributingEquipmentSequence[
        -1
    ].ContributionDateTime  # of highdicom itself, which stands last


def name_implementation(document: Dataset, context: ReportContext) -> None:
    """Set the writer in the file meta (PS3.10 7.1); the version name holds 16 characters."""
    document.file_meta.ImplementationClassUID = UID(mint_uid(codes.NAMESPACE, "implementation"))
    document.file_meta.ImplementationVersionName = f"HILUM_{context.software_version}"[:16]


def short(text: str) -> str:
    """Our own names fit into LO; a patient's never come here."""
    return text[:_LONG_STRING]


def encode(document: Dataset) -> bytes:
    """A Part 10 file."""
    target = BytesIO()
    dcmwrite(target, document, enforce_file_format=True)
    return target.getvalue()
