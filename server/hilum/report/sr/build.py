"""The result as a Comprehensive 3D SR document (PS3.3 A.35.13), as IHE AI Results asks for.

The same result gives the same bytes.

This is the reference, the only place that knows the standard, and highdicom takes 0.2 s for it.
`template` is compiled from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from highdicom.sr import Comprehensive3DSR
from pydicom.dataset import Dataset

from hilum.domain import SR, Document, Release, Result
from hilum.report.context import HeatMap, ReportContext
from hilum.report.headers.header import utc_offset
from hilum.report.sr.content import content_tree
from hilum.report.sr.document_header import (
    PRODUCT,
    algorithm_equipment,
    local,
    name_implementation,
    settle_times,
    short,
)
from hilum.report.wording import series_description


def build(
    result: Result,
    release: Release,
    context: ReportContext,
    images: Sequence[Dataset],
    before: Sequence[Document],
    heat_map: HeatMap | None,
) -> Comprehensive3DSR:
    """Return the document of these images, which replaces those before it.

    Some findings may have an explanation.
    """
    offset = utc_offset(images[0])
    created = local(result.created_at, offset)
    report = Comprehensive3DSR(
        evidence=[*images, *_shown(heat_map, result)],
        content=content_tree(result, release, images, context, heat_map),
        series_instance_uid=result.identifiers[SR.series],
        series_number=context.series_number,
        sop_instance_uid=result.identifiers[SR.key],
        instance_number=result.revision,
        manufacturer=short(context.manufacturer),
        is_complete=True,
        is_final=False,
        is_verified=False,
        institution_name=short(context.site_name) or None,
        previous_versions=[_reference(document, result) for document in before] or None,
        contributing_equipment=[algorithm_equipment(result, release, created)],
        specific_character_set="ISO_IR 192",
        series_description=series_description(result, context.series_title),
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
    """Add the heat map as evidence, because the tree refers to it (PS3.3 C.17.2.3)."""
    if heat_map is None or not heat_map.finding_keys:
        return
    yield _reference(heat_map, result)


def _reference(document: Document | HeatMap, result: Result) -> Dataset:
    """Return the reference to a document of the study, such as a replaced one (PS3.3 C.17.2)."""
    named = Dataset()
    named.SOPClassUID = document.sop_class_uid
    named.SOPInstanceUID = document.sop_instance_uid
    named.SeriesInstanceUID = document.series_instance_uid
    named.StudyInstanceUID = result.study_instance_uid
    return named
