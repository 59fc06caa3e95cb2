"""A picture of ours as a Secondary Capture Image (PS3.3 A.8.1), about images of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from highdicom.sc import SCImage
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian

from hilum.domain import Document, DocumentKind, Release, ReportJob
from hilum.report.context import ReportContext
from hilum.report.headers.header import pair, utc_offset
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


@dataclass(frozen=True, slots=True)
class DocumentSeries:
    """The series that a kind of document has in a study: its number and its description."""

    kind: DocumentKind
    number: int
    description: str


def secondary_capture(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    series: DocumentSeries,
    headers: Sequence[Dataset],
    whose: Dataset,
    pixels: NDArray[np.uint8],
) -> SCImage:
    """Return the image of `pixels` (height, width, 3).

    `headers`: of the images that it is about; `whose`: of the one that gives patient and study.
    """
    result = job.result
    created = local(result.created_at, utc_offset(whose))
    capture = SCImage.from_ref_dataset(
        whose,
        pixels,
        "RGB",
        bits_allocated=8,
        coordinate_system="PATIENT",
        patient_orientation=("L", "F"),  # asked for by highdicom; replaced by `_orient`
        series_instance_uid=result.identifiers[series.kind.series],
        series_number=series.number,
        sop_instance_uid=result.identifiers[series.kind.key],
        instance_number=result.revision,
        manufacturer=short(context.manufacturer),
        transfer_syntax_uid=ExplicitVRLittleEndian,
        contributing_equipment=[algorithm_equipment(result, release, created)],
        specific_character_set="ISO_IR 192",
        series_description=series.description,
        manufacturer_model_name=PRODUCT,
        software_versions=short(context.software_version),
        device_serial_number=short(context.installation_serial),
        institution_name=short(context.site_name) or None,
        content_date=created.date(),
        content_time=created.time(),
    )
    complete(capture, context, whose, created)
    capture.DateOfSecondaryCapture = capture.InstanceCreationDate
    capture.TimeOfSecondaryCapture = capture.InstanceCreationTime
    capture.ConversionType = "WSD"  # made by a workstation; highdicom says digital interface
    _orient(capture, headers)
    _refer(capture, headers)
    return capture


def complete(capture: Dataset, context: ReportContext, whose: Dataset, created: datetime) -> None:
    """Add the patient, the study and the times, as the report has them.

    Burned In Annotation is YES: our own words identify no patient, but the source may have burned
    in words that do.
    """
    # As the report does, so that both name one patient and one study alike.
    capture.copy_patient_and_study_information(whose)
    offset = utc_offset(whose)
    if offset is not None:
        capture.TimezoneOffsetFromUTC = offset
    settle_times(capture, created)
    name_implementation(capture, context)
    capture.BurnedInAnnotation = "YES"


def describe(capture: Dataset, derivation: str, said: Iterable[str]) -> None:
    """Add the words of the picture as attributes."""
    capture.DerivationDescription = derivation[:1024]
    capture.ImageComments = " ".join(said)[:10240]


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
    capture.SourceImageSequence = [source_item(header) for header in headers]
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


def source_item(header: Dataset) -> Dataset:
    """Return the reference to an image that a document was made from."""
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


def stored_document(written: Dataset, job: ReportJob, kind: DocumentKind) -> Document:
    """Return the encoded document of a finished data set."""
    predecessor = job.predecessors.get(kind.key)
    return Document(
        kind=kind.key,
        media_type=kind.media_type,
        content=encode(written),
        sop_class_uid=str(written.SOPClassUID),
        sop_instance_uid=str(written.SOPInstanceUID),
        series_instance_uid=str(written.SeriesInstanceUID),
        predecessor_uid=predecessor.sop_instance_uid if predecessor else None,
        result_id=job.result.id,
    )
