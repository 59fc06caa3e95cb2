"""The result as a Comprehensive 3D SR document (PS3.3 A.35.13), as IHE AI Results asks for; the same result gives the same bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from io import BytesIO
from typing import Final

import highdicom as hd
from highdicom.sr import Comprehensive3DSR
from pydicom import dcmwrite
from pydicom.dataset import Dataset
from pydicom.uid import UID

from hilum.domain import Document, Instance, Reason, Release, ReportJob, Result, mint_uid
from hilum.errors import NotAnalysed
from hilum.report import codes
from hilum.report.content import content_tree
from hilum.report.context import ReportContext
from hilum.report.header import read_header, utc_offset
from hilum.report.quiet import quietly
from hilum.report.wording import series_description

MEDIA_TYPE: Final = "application/dicom"
_PRODUCT: Final = "Hilum"
_LONG_STRING: Final = 64


def structured_report(job: ReportJob, release: Release, context: ReportContext) -> Document:
    """The encoded document of one result with at least one used image. UIDs and times are the result's; nothing here asks a clock.

    Raises NotAnalysed: corrupt_header when the header of a used image cannot be read, instance_missing when it is gone.
    """
    images = [read_header(instance) for instance in _used(job)]
    predecessor = job.predecessors.get("sr")
    with quietly():
        report = _build(job.result, release, context, images, predecessor)
        content = _encode(report)
    return Document(
        kind="sr",
        media_type=MEDIA_TYPE,
        content=content,
        sop_class_uid=str(report.SOPClassUID),
        sop_instance_uid=str(report.SOPInstanceUID),
        series_instance_uid=str(report.SeriesInstanceUID),
        predecessor_uid=predecessor.sop_instance_uid if predecessor else None,
        result_id=job.result.id,
    )


def _used(job: ReportJob) -> list[Instance]:
    """Images that a number rests on, in the order of the result; the first gives patient and study."""
    stored = {instance.sop_instance_uid: instance for instance in job.instances}
    uids = [image.sop_instance_uid for image in job.result.source_images if image.is_used]
    if missing := [uid for uid in uids if uid not in stored]:
        raise NotAnalysed(Reason.INSTANCE_MISSING, f"{len(missing)} of {len(uids)} source images have left the ledger")
    return [stored[uid] for uid in uids]


def _build(
    result: Result, release: Release, context: ReportContext, images: list[Dataset], predecessor: Document | None
) -> Comprehensive3DSR:
    offset = utc_offset(images[0])
    created = _local(result.created_at, offset)
    report = Comprehensive3DSR(
        evidence=images,
        content=content_tree(result, release, images, context),
        series_instance_uid=result.identifiers["sr_series"],
        series_number=context.series_number,
        sop_instance_uid=result.identifiers["sr"],
        instance_number=result.revision,
        manufacturer=_short(context.manufacturer),
        is_complete=True,
        is_final=False,
        is_verified=False,
        institution_name=_short(context.site_name) or None,
        previous_versions=[_reference(predecessor, result)] if predecessor else None,
        contributing_equipment=[_algorithm_equipment(result, release, created)],
        specific_character_set="ISO_IR 192",
        series_description=series_description(result),
        manufacturer_model_name=_PRODUCT,
        software_versions=_short(context.software_version),
        device_serial_number=_short(context.installation_serial),
        content_date=created.date(),
        content_time=created.time(),
    )
    if offset is not None:
        report.TimezoneOffsetFromUTC = offset
    _settle_times(report, created)
    _name_implementation(report, context)
    return report


def _local(seconds: float, offset: str | None) -> datetime:
    """The moment in the zone of the images' dates and times, which is the installation's own unless they name one."""
    moment = datetime.fromtimestamp(round(seconds, 3), UTC)
    if offset is None:
        return moment.astimezone()
    minutes = int(offset[1:3]) * 60 + int(offset[3:5])
    return moment.astimezone(timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes)))


def _reference(predecessor: Document, result: Result) -> Dataset:
    """What Predecessor Documents Sequence needs to name the document that this one replaces (PS3.3 C.17.2)."""
    named = Dataset()
    named.SOPClassUID = predecessor.sop_class_uid
    named.SOPInstanceUID = predecessor.sop_instance_uid
    named.SeriesInstanceUID = predecessor.series_instance_uid
    named.StudyInstanceUID = result.study_instance_uid
    return named


def _algorithm_equipment(result: Result, release: Release, created: datetime) -> hd.ContributingEquipment:
    """The release in Contributing Equipment Sequence, with a Device UID that changes with the weights (IHE AI Results)."""
    state = "trained" if result.is_trained else "untrained weights"
    item = hd.ContributingEquipment(
        manufacturer=_short(release.manufacturer),
        purpose_of_reference=codes.PROCESSING_EQUIPMENT,
        manufacturer_model_name=_short(release.name),
        software_versions=_short(release.version),
        contribution_datetime=created.strftime("%Y%m%d%H%M%S.%f%z"),
        contribution_description=f"Processing algorithm: {release.architecture}, {state}, weights sha256 {release.weights_sha256}"[:1024],
    )
    item.DeviceUID = codes.device_uid(release)
    return item


def _settle_times(report: Dataset, created: datetime) -> None:
    """What highdicom stamps with the time of building. A document built again must be the same document."""
    report.InstanceCreationDate = created.date().strftime("%Y%m%d")
    report.InstanceCreationTime = created.strftime("%H%M%S.%f")
    for item in report.ContributingEquipmentSequence:
        if item.get("ManufacturerModelName") == "highdicom":
            del item.ContributionDateTime


def _name_implementation(report: Dataset, context: ReportContext) -> None:
    """File meta of who wrote the file (PS3.10 7.1); the version name holds 16 characters."""
    report.file_meta.ImplementationClassUID = UID(mint_uid(codes.NAMESPACE, "implementation"))
    report.file_meta.ImplementationVersionName = f"HILUM_{context.software_version}"[:16]


def _short(text: str) -> str:
    """Our own names fit into LO; a patient's never come here."""
    return text[:_LONG_STRING]


def _encode(report: Dataset) -> bytes:
    target = BytesIO()
    dcmwrite(target, report, enforce_file_format=True)
    return target.getvalue()
