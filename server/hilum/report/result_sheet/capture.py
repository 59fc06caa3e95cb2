"""The result sheet as a Secondary Capture Image (PS3.3 A.8.1), which every viewer shows."""

from __future__ import annotations

from collections.abc import Sequence

from pydicom.dataset import Dataset

from hilum.domain import SHEET, Document, Release, ReportJob
from hilum.report.context import ReportContext
from hilum.report.heat_map.capture import (
    DocumentSeries,
    describe,
    secondary_capture,
    stored_document,
)
from hilum.report.result_sheet.canvas import sheet_pixels
from hilum.report.result_sheet.content import SheetContent
from hilum.report.wording import caveats, picture_description

SHEET_TITLE = "AI result"


def captured_sheet(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    content: SheetContent,
    headers: Sequence[Dataset],
) -> Document:
    """Return the document. `headers`: of the images that the report is about, as there."""
    description = picture_description(job.result, SHEET_TITLE)
    capture = secondary_capture(
        job,
        release,
        context,
        DocumentSeries(SHEET, context.sheet_series_number, description),
        headers,
        headers[0],
        sheet_pixels(content),
    )
    derivation = f"The result of {release.id} on one page, with its images. Not for diagnosis."
    describe(capture, derivation, caveats(job.result, release, context))
    return stored_document(capture, job, SHEET)
