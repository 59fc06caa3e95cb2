"""The heat map as a Secondary Capture Image (PS3.3 A.8.1), which every viewer shows.

One sheet for a study and release, so that a revision replaces it as a whole and no panel of an
older result is left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from highdicom.sc import SCImage
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian

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
from hilum.report.headers.header import pair, read_header, utc_offset
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.heat_map.choice import HeatMapLeftOut, chosen_findings, chosen_images, shown_on
from hilum.report.heat_map.display import grey_levels
from hilum.report.heat_map.panel import Panel
from hilum.report.heat_map.sheet import WITHDRAWN, SheetRow, heading, resolution, sheet, withdrawal
from hilum.report.sources import Headers
from hilum.report.sr import codes
from hilum.report.sr.document_header import (
    PRODUCT,
    algorithm_equipment,
    encode,
    local,
    name_implementation,
    settle_times,
    short,
)
from hilum.report.wording import caveats, heat_map_description
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
        pixels = sheet(rows, job.result, release, context)
        capture = _capture(job.result, release, context, _whose(job), headers, pixels)
        _describe(capture, _derivation(rows[0], release), job.result, release, context)
        document = _document(capture, job)
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
        capture = _capture(
            job.result,
            release,
            context,
            _whose(job),
            headers,
            withdrawal(job.result, release, context, why),
        )
        _describe(capture, f"{why} {WITHDRAWN}", job.result, release, context)
        return _document(capture, job)


def _nothing_to_show(result: Result) -> str:
    if result.outcome is Outcome.NOT_ANALYSED:
        return f"The study is not analysed any more ({result.reason})."
    return "No finding is present any more."


def _row(image: SourceImage, result: Result, release: Release, sources: HeatMapSources) -> SheetRow:
    picture = sources.pictures.get(image.sop_instance_uid)
    if picture is None or picture.path is None:
        raise HeatMapLeftOut("The stored object is gone from the archive.")
    if picture.maps is None:
        raise HeatMapLeftOut("The ledger holds no class activation map of the image.")
    shown = shown_on(image, result, release, picture.maps)
    grey, placement = grey_levels(
        picture.path, InputSpec.from_mapping(release.input_spec), sources.maximum_pixels
    )
    return SheetRow(
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


def _capture(
    result: Result,
    release: Release,
    context: ReportContext,
    whose: Dataset,
    headers: Sequence[Dataset],
    pixels: NDArray[np.uint8],
) -> SCImage:
    offset = utc_offset(whose)
    created = local(result.created_at, offset)
    capture = SCImage.from_ref_dataset(
        whose,
        pixels,
        "RGB",
        bits_allocated=8,
        coordinate_system="PATIENT",
        patient_orientation=("L", "F"),  # asked for by highdicom; replaced by `_orient`
        series_instance_uid=result.identifiers[HEAT_MAP.series],
        series_number=context.heat_map_series_number,
        sop_instance_uid=result.identifiers[HEAT_MAP.key],
        instance_number=result.revision,
        manufacturer=short(context.manufacturer),
        transfer_syntax_uid=ExplicitVRLittleEndian,
        contributing_equipment=[algorithm_equipment(result, release, created)],
        specific_character_set="ISO_IR 192",
        series_description=heat_map_description(result),
        manufacturer_model_name=PRODUCT,
        software_versions=short(context.software_version),
        device_serial_number=short(context.installation_serial),
        institution_name=short(context.site_name) or None,
        content_date=created.date(),
        content_time=created.time(),
    )
    # As the report does, so that both name one patient and one study alike.
    capture.copy_patient_and_study_information(whose)
    if offset is not None:
        capture.TimezoneOffsetFromUTC = offset
    settle_times(capture, created)
    capture.DateOfSecondaryCapture = capture.InstanceCreationDate
    capture.TimeOfSecondaryCapture = capture.InstanceCreationTime
    name_implementation(capture, context)
    _orient(capture, headers)
    _refer(capture, headers)
    return capture


def _orient(capture: Dataset, headers: Sequence[Dataset]) -> None:
    """Patient Orientation where all images agree, else empty (type 2C).

    Which side is left matters on this picture, too.
    """
    found = [pair(header, "PatientOrientation") for header in headers]
    capture.PatientOrientation = (
        list(found[0]) if found[0] is not None and found.count(found[0]) == len(found) else []
    )
    # Without it Laterality would be due (PS3.3 C.7.3.1), and a chest has two sides.
    capture.BodyPartExamined = "CHEST"


def _refer(capture: Dataset, headers: Sequence[Dataset]) -> None:
    """Add Source Image Sequence (PS3.3 C.7.6.1.1.4); a picture of lossy pixels stays lossy."""
    capture.SourceImageSequence = [_source(header) for header in headers]
    lossy = next(
        (header for header in headers if header.get("LossyImageCompression") == "01"), None
    )
    for keyword in (
        "LossyImageCompression",
        "LossyImageCompressionRatio",
        "LossyImageCompressionMethod",
    ):
        if lossy is not None and keyword in lossy:
            setattr(capture, keyword, lossy.get(keyword))


def _source(header: Dataset) -> Dataset:
    item = Dataset()
    purpose = Dataset()
    code = codes.SOURCE_FOR_PROCESSING
    purpose.CodeValue = code.value
    purpose.CodingSchemeDesignator = code.scheme_designator
    purpose.CodeMeaning = code.meaning
    item.ReferencedSOPClassUID = header.SOPClassUID
    item.ReferencedSOPInstanceUID = header.SOPInstanceUID
    item.PurposeOfReferenceCodeSequence = [purpose]
    return item


def _derivation(row: SheetRow, release: Release) -> str:
    panel = row.panels[0]
    return (
        f"Class activation maps of {release.id} over the source images:"
        f" {resolution(panel.placement, panel.cells.shape)}, bilinear between cells, each map on a"
        " scale of its own. Not for diagnosis."
    )


def _describe(
    capture: Dataset, derivation: str, result: Result, release: Release, context: ReportContext
) -> None:
    """Add the words of the picture as attributes.

    Burned In Annotation is YES: our own words identify no patient, but the source may have burned
    in words that do.
    """
    capture.BurnedInAnnotation = "YES"
    capture.ConversionType = "WSD"  # made by a workstation; highdicom says digital interface
    capture.DerivationDescription = derivation[:1024]
    capture.ImageComments = " ".join(caveats(result, release, context))[:10240]


def _document(capture: Dataset, job: ReportJob) -> Document:
    predecessor = job.predecessors.get(HEAT_MAP.key)
    return Document(
        kind=HEAT_MAP.key,
        media_type=HEAT_MAP.media_type,
        content=encode(capture),
        sop_class_uid=str(capture.SOPClassUID),
        sop_instance_uid=str(capture.SOPInstanceUID),
        series_instance_uid=str(capture.SeriesInstanceUID),
        predecessor_uid=predecessor.sop_instance_uid if predecessor else None,
        result_id=job.result.id,
    )
