"""The structured report of a result, by the reference builder or by a template: the same bytes."""

from __future__ import annotations

import dataclasses

from pydicom.uid import Comprehensive3DSRStorage

from hilum.domain import BASIC_TEXT, SR, TEXT_SR, Document, Release, ReportJob
from hilum.report.context import HeatMap, ReportContext
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.sources import Extracts, Headers, replaced
from hilum.report.sr.build import build
from hilum.report.sr.class_preference import derive
from hilum.report.sr.document_header import encode
from hilum.report.template import SrTemplate


def structured_report(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    heat_map: HeatMap | None,
    extracts: Extracts,
    template: SrTemplate | None,
) -> Document:
    """Return the encoded document of one result.

    UIDs and times are the result's; no clock is read. The document is about the used images. When
    no image was analysed, it is about all of them and names the reason. A template writes the same
    bytes as the reference builder. Raises the exceptions of `Headers.reported`, and Unusual for
    content that the template cannot hold.
    """
    before = replaced(job)
    if template is None:
        with quietly():
            content = encode(
                build(job.result, release, context, Headers(job).reported(), before, heat_map)
            )
    else:
        content = template.fill(job.result, extracts.reported(), before, heat_map)
    return Document(
        kind=SR.key,
        media_type=SR.media_type,
        content=content,
        sop_class_uid=Comprehensive3DSRStorage,
        sop_instance_uid=job.result.identifiers[SR.key],
        series_instance_uid=job.result.identifiers[SR.series],
        predecessor_uid=before[0].sop_instance_uid if before else None,
        result_id=job.result.id,
    )


def text_report(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    heat_map: HeatMap | None,
    template: SrTemplate | None,
) -> Document:
    """Return the report as Basic Text SR under a UID and in a series of its own.

    The lines are those of the class that the ladder of the report ends with. It replaces earlier
    text reports alone. Raises the exceptions of `structured_report`.
    """
    before = job.predecessors.get(TEXT_SR.key)
    earlier = {} if before is None else {SR.key: before}
    alone = dataclasses.replace(job, predecessors=earlier, delivered_reports={})
    report = structured_report(alone, release, context, heat_map, Extracts(job), template)
    series = job.result.identifiers[TEXT_SR.series]
    derived = derive(
        report,
        BASIC_TEXT,
        job.result.identifiers[TEXT_SR.key],
        (series, context.text_series_number),
    )
    return dataclasses.replace(derived, kind=TEXT_SR.key)
