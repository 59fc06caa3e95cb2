"""The result as a Comprehensive 3D SR document (PS3.3 A.35.13), as IHE AI Results asks for; the same result gives the same bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from highdicom.sr import Comprehensive3DSR
from pydicom.dataset import Dataset

from hilum.domain import Document, Instance, Outcome, Reason, Release, ReportJob, Result
from hilum.errors import NotAnalysed
from hilum.report.content import content_tree
from hilum.report.context import HeatMap, ReportContext
from hilum.report.header import read_header, utc_offset
from hilum.report.maker import MEDIA_TYPE, PRODUCT, algorithm_equipment, encode, local, name_implementation, settle_times, short
from hilum.report.quiet import quietly
from hilum.report.wording import series_description


def structured_report(job: ReportJob, release: Release, context: ReportContext, heat_map: HeatMap | None = None) -> Document:
    """The encoded document of one result. UIDs and times are the result's; nothing here asks a clock.

    It is about the used images, or, when no image was analysed, about all of them and says why. Raises NotAnalysed: corrupt_header
    when the header of a used image, or of every image, cannot be read, instance_missing when it is gone.
    """
    is_analysed = job.result.outcome is not Outcome.NOT_ANALYSED
    images = [read_header(instance) for instance in _used(job)] if is_analysed else _readable(job)
    before = _replaced(job)
    with quietly():
        report = _build(job.result, release, context, images, before, heat_map)
        content = encode(report)
    return Document(
        kind="sr",
        media_type=MEDIA_TYPE,
        content=content,
        sop_class_uid=str(report.SOPClassUID),
        sop_instance_uid=str(report.SOPInstanceUID),
        series_instance_uid=str(report.SeriesInstanceUID),
        predecessor_uid=before[0].sop_instance_uid if before else None,
        result_id=job.result.id,
    )


def _used(job: ReportJob) -> list[Instance]:
    """Images that a number rests on, in the order of the result; the first gives patient and study."""
    stored = {instance.sop_instance_uid: instance for instance in job.instances}
    uids = [image.sop_instance_uid for image in job.result.source_images if image.is_used]
    if missing := [uid for uid in uids if uid not in stored]:
        raise NotAnalysed(Reason.INSTANCE_MISSING, f"{len(missing)} of {len(uids)} source images have left the ledger")
    return [stored[uid] for uid in uids]


def _readable(job: ReportJob) -> list[Dataset]:
    """The headers of all images that have one; the first gives patient and study."""
    headers = []
    for instance in job.instances:
        with contextlib.suppress(NotAnalysed):  # its reason stands in the result
            headers.append(read_header(instance))
    if not headers:
        raise NotAnalysed(Reason.CORRUPT_HEADER, "no image of the study has a header that can be read")
    return headers


def _replaced(job: ReportJob) -> list[Document]:
    """What this report replaces: wherever an earlier one was really sent, the newest of them, of whatever SOP Class."""
    shown = [job.predecessors["sr"]] if "sr" in job.predecessors else []
    return list({document.sop_instance_uid: document for document in job.held.values()}.values()) or shown


def _build(
    result: Result,
    release: Release,
    context: ReportContext,
    images: list[Dataset],
    before: Sequence[Document],
    heat_map: HeatMap | None,
) -> Comprehensive3DSR:
    offset = utc_offset(images[0])
    created = local(result.created_at, offset)
    report = Comprehensive3DSR(
        evidence=[*images, *_shown(heat_map, result)],
        content=content_tree(result, release, images, context, heat_map),
        series_instance_uid=result.identifiers["sr_series"],
        series_number=context.series_number,
        sop_instance_uid=result.identifiers["sr"],
        instance_number=result.revision,
        manufacturer=short(context.manufacturer),
        is_complete=True,
        is_final=False,
        is_verified=False,
        institution_name=short(context.site_name) or None,
        previous_versions=[_reference(document, result) for document in before] or None,
        contributing_equipment=[algorithm_equipment(result, release, created)],
        specific_character_set="ISO_IR 192",
        series_description=series_description(result),
        manufacturer_model_name=PRODUCT,
        software_versions=short(context.software_version),
        device_serial_number=short(context.installation_serial),
        content_date=created.date(),
        content_time=created.time(),
    )
    if offset is not None:
        report.TimezoneOffsetFromUTC = offset
    settle_times(report, created)
    name_implementation(report, context)
    return report


def _shown(heat_map: HeatMap | None, result: Result) -> Iterator[Dataset]:
    """The heat map as evidence: what the tree refers to stands there, too (PS3.3 C.17.2.3)."""
    if heat_map is None or not heat_map.finding_keys:
        return
    named = Dataset()
    named.SOPClassUID, named.SOPInstanceUID = heat_map.sop_class_uid, heat_map.sop_instance_uid
    named.SeriesInstanceUID, named.StudyInstanceUID = heat_map.series_instance_uid, result.study_instance_uid
    yield named


def _reference(predecessor: Document, result: Result) -> Dataset:
    """What Predecessor Documents Sequence needs to name the document that this one replaces (PS3.3 C.17.2)."""
    named = Dataset()
    named.SOPClassUID = predecessor.sop_class_uid
    named.SOPInstanceUID = predecessor.sop_instance_uid
    named.SeriesInstanceUID = predecessor.series_instance_uid
    named.StudyInstanceUID = result.study_instance_uid
    return named
