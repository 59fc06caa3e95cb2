"""The heat map as a Secondary Capture Image (PS3.3 A.8.1), which every viewer shows.

One sheet for a study and release, so that a revision replaces it as a whole and no panel of an
older result is left behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydicom.dataset import Dataset

from hilum.domain import (
    HEAT_MAP,
    Document,
    Finding,
    Instance,
    Outcome,
    Release,
    ReportJob,
    Result,
    SourceImage,
)
from hilum.errors import NotAnalysed
from hilum.report.context import HeatMap, HeatMapSources, ReportContext
from hilum.report.headers.header import read_header
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.heat_map.capture import (
    DocumentSeries,
    describe,
    secondary_capture,
    stored_document,
)
from hilum.report.heat_map.choice import HeatMapLeftOut, chosen_findings, chosen_images, shown_on
from hilum.report.heat_map.display import grey_levels
from hilum.report.heat_map.layout import (
    WITHDRAWN,
    MapRow,
    heading,
    map_pixels,
    resolution,
    withdrawal_pixels,
)
from hilum.report.heat_map.panel import Panel
from hilum.report.sources import Headers
from hilum.report.wording import caveats, picture_description
from hilum_preprocessing import InputSpec


def heat_map(
    job: ReportJob, release: Release, context: ReportContext, sources: HeatMapSources
) -> tuple[Document, HeatMap] | None:
    """Return the document and the report's reference to it; None when there is no finding to show.

    Where a destination may have an earlier heat map and there is nothing to show now, or drawing
    fails, a sheet that says so takes its place. Deterministic: the same result and the same files
    give the same bytes. Raises HeatMapLeftOut.
    """
    may_be_shown = HEAT_MAP.key in job.predecessors
    try:
        drawn = _drawn(job, release, context, sources)
    except HeatMapLeftOut as error:
        if not may_be_shown:
            raise
        return _withdrawn(job, release, context, f"No new heat map: {error.sentence}"), HeatMap(
            left_out=error.sentence
        )
    if drawn is None and may_be_shown:
        return _withdrawn(job, release, context, _nothing_to_show(job.result)), HeatMap()
    return drawn


def _drawn(
    job: ReportJob, release: Release, context: ReportContext, sources: HeatMapSources
) -> tuple[Document, HeatMap] | None:
    findings = chosen_findings(job.result)
    images = chosen_images(job.result, findings)
    if not images:
        return None
    if sources.obstacle:
        raise HeatMapLeftOut(sources.obstacle)
    rows = [_row(image, job.result, release, sources) for image in images]
    keys = _shown_keys(findings, images)
    headers = [_header(image, job) for image in images]
    with quietly():
        pixels = map_pixels(rows, job.result, release, context)
        capture = secondary_capture(
            job, release, context, _series(job, context), headers, _whose(job), pixels
        )
        describe(capture, _derivation(rows[0], release), caveats(job.result, release, context))
        document = stored_document(capture, job, HEAT_MAP)
    return document, HeatMap(
        str(capture.SOPClassUID), str(capture.SOPInstanceUID), str(capture.SeriesInstanceUID), keys
    )


def _shown_keys(findings: Iterable[Finding], images: Iterable[SourceImage]) -> tuple[str, ...]:
    shown = {image.sop_instance_uid for image in images}
    return tuple(
        finding.key for finding in findings if shown.intersection(finding.source_sop_instance_uids)
    )


def _withdrawn(job: ReportJob, release: Release, context: ReportContext, why: str) -> Document:
    """Words alone, about the images of the report, which does not name it: it explains no finding.

    Raises HeatMapLeftOut.
    """
    try:
        headers = Headers(job).reported()
    except NotAnalysed:
        raise HeatMapLeftOut("The header of the image cannot be read.") from None
    with quietly():
        pixels = withdrawal_pixels(job.result, release, context, why)
        capture = secondary_capture(
            job, release, context, _series(job, context), headers, _whose(job), pixels
        )
        describe(capture, f"{why} {WITHDRAWN}", caveats(job.result, release, context))
        return stored_document(capture, job, HEAT_MAP)


def _nothing_to_show(result: Result) -> str:
    if result.outcome is Outcome.NOT_ANALYSED:
        return f"The study is not analysed any more ({result.reason})."
    return "No finding is present any more."


def _row(image: SourceImage, result: Result, release: Release, sources: HeatMapSources) -> MapRow:
    picture = sources.pictures.get(image.sop_instance_uid)
    if picture is None or picture.path is None:
        raise HeatMapLeftOut("The stored object is gone from the archive.")
    if picture.maps is None:
        raise HeatMapLeftOut("The ledger holds no class activation map of the image.")
    shown = shown_on(image, result, release, picture.maps)
    grey, placement = grey_levels(
        picture.path, InputSpec.from_mapping(release.input_spec), sources.maximum_pixels
    )
    return MapRow(
        image,
        [
            Panel(grey, placement, item.cells, heading(item.finding, image, result))
            for item in shown
        ],
    )


def _header(image: SourceImage, job: ReportJob) -> Dataset:
    stored: dict[str, Instance] = {
        instance.sop_instance_uid: instance for instance in job.instances
    }
    try:
        return read_header(stored[image.sop_instance_uid])
    except (KeyError, NotAnalysed):
        raise HeatMapLeftOut("The header of the image cannot be read.") from None


def _whose(job: ReportJob) -> Dataset:
    """The header that gives the report its patient and study."""
    try:
        return Headers(job).whose()
    except NotAnalysed:
        raise HeatMapLeftOut("The header of the image cannot be read.") from None


def _derivation(row: MapRow, release: Release) -> str:
    panel = row.panels[0]
    return (
        f"Class activation maps of {release.id} over the source images:"
        f" {resolution(panel.placement, panel.cells.shape)}, bilinear between cells, each map on a"
        " scale of its own. Not for diagnosis."
    )


def _series(job: ReportJob, context: ReportContext) -> DocumentSeries:
    return DocumentSeries(
        HEAT_MAP, context.heat_map_series_number, picture_description(job.result, "AI heat map")
    )
