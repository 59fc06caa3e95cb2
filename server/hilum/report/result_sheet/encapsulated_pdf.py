"""The result sheet as Encapsulated PDF (PS3.3 A.45.1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from highdicom.base import SOPClass
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian

from hilum.domain import PDF, Document, Release, ReportJob
from hilum.report.context import ReportContext
from hilum.report.headers.header import utc_offset
from hilum.report.heat_map.capture import complete, source_item, stored_document
from hilum.report.result_sheet.capture import SHEET_TITLE
from hilum.report.result_sheet.content import SheetContent
from hilum.report.result_sheet.pages import sheet_pdf
from hilum.report.sr import codes
from hilum.report.sr.document_header import PRODUCT, algorithm_equipment, local, short
from hilum.report.wording import picture_description


def encapsulated_sheet(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    content: SheetContent,
    headers: Sequence[Dataset],
) -> Document:
    """Return the document. `headers`: of the images that the report is about, as there."""
    created = local(job.result.created_at, utc_offset(headers[0]))
    written = _header(job, release, context, headers[0], created)
    complete(written, context, headers[0], created)
    written.ContentDate = written.InstanceCreationDate
    written.ContentTime = written.InstanceCreationTime
    written.AcquisitionDateTime = ""  # type 2: the images have theirs
    written.ConversionType = "WSD"
    written.DocumentTitle = f"{SHEET_TITLE}, not for diagnosis, revision {job.result.revision}"
    written.ConceptNameCodeSequence = [_code_item()]
    written.VerificationFlag = "UNVERIFIED"
    written.SourceInstanceSequence = [source_item(header) for header in headers]
    written.MIMETypeOfEncapsulatedDocument = "application/pdf"
    _embed(written, sheet_pdf(content, job.result.created_at))
    return stored_document(written, job, PDF)


def _header(
    job: ReportJob, release: Release, context: ReportContext, whose: Dataset, created: datetime
) -> SOPClass:
    result = job.result
    written = SOPClass(
        study_instance_uid=whose.StudyInstanceUID,
        series_instance_uid=result.identifiers[PDF.series],
        series_number=context.pdf_series_number,
        sop_instance_uid=result.identifiers[PDF.key],
        sop_class_uid=PDF.sop_class_uid,
        instance_number=result.revision,
        modality="DOC",
        manufacturer=short(context.manufacturer),
        manufacturer_model_name=PRODUCT,
        software_versions=short(context.software_version),
        device_serial_number=short(context.installation_serial),
        institution_name=short(context.site_name) or None,
        transfer_syntax_uid=ExplicitVRLittleEndian,
        specific_character_set="ISO_IR 192",
        series_description=picture_description(result, SHEET_TITLE),
    )
    equipment = algorithm_equipment(result, release, created)
    written._add_contributing_equipment([equipment], whose)  # noqa: SLF001 - highdicom has no class for PDF
    return written


def _code_item() -> Dataset:
    item = Dataset()
    code = codes.DIAGNOSTIC_IMAGING_REPORT
    item.CodeValue = code.value
    item.CodingSchemeDesignator = code.scheme_designator
    item.CodeMeaning = code.meaning
    return item


def _embed(written: Dataset, pdf: bytes) -> None:
    """Add the PDF; its length is said apart, because the value is padded to an even one."""
    written.EncapsulatedDocument = pdf + b"\0" * (len(pdf) % 2)
    written.EncapsulatedDocumentLength = len(pdf)
