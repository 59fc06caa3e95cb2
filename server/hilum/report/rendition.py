"""Documents that are rendered from a result: its sheet, its text, its layer over the images.

They take so long that they are built in another process. Programs that draw are imported only
where a document is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pydicom.dataset import Dataset

from hilum.domain import GSPS, HEAT_MAP, PDF, SHEET, TEXT_SR, Document, Outcome, Release, ReportJob
from hilum.errors import NotAnalysed
from hilum.report.context import HeatMap, HeatMapSources, ReportContext
from hilum.report.documents import text_report
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.sources import Headers
from hilum.report.template import SrTemplate

if TYPE_CHECKING:
    from hilum.report.result_sheet.content import SheetContent


@dataclass(frozen=True)
class Rendition:
    """The inputs of the documents that are rendered from a result.

    `kinds`: all that are made of the result. `heat_map`: the reference to the heat map, None where
    none is among them.
    """

    job: ReportJob
    release: Release
    context: ReportContext
    kinds: Sequence[str]
    heat_map: HeatMap | None
    sources: HeatMapSources
    template: SrTemplate | None

    @cached_property
    def explanation(self) -> HeatMap | None:
        """The picture that the report names: the heat map, or else a sheet that shows maps."""
        has_findings = self.job.result.outcome is not Outcome.NOT_ANALYSED
        if HEAT_MAP.key in self.kinds or SHEET.key not in self.kinds or not has_findings:
            return self.heat_map
        uids = self.job.result.identifiers
        keys = self.content.map_keys
        named = HeatMap(SHEET.sop_class_uid, uids[SHEET.key], uids[SHEET.series], keys)
        return named if keys else None

    @cached_property
    def headers(self) -> list[Dataset]:
        """The headers of the images that the report is about; see `Headers.reported`."""
        return Headers(self.job).reported()

    @cached_property
    def content(self) -> SheetContent:
        """The content of the result sheet, with its pictures: one for all its forms."""
        from hilum.report.result_sheet.content import sheet_content  # noqa: PLC0415 - on demand

        return sheet_content(self.job, self.release, self.context, self.sources, self.headers[0])


def _sheet(rendition: Rendition) -> Document:
    from hilum.report.result_sheet.capture import captured_sheet  # noqa: PLC0415 - on demand

    with quietly():
        return captured_sheet(
            rendition.job,
            rendition.release,
            rendition.context,
            rendition.content,
            rendition.headers,
        )


def _pdf(rendition: Rendition) -> Document:
    from hilum.report.result_sheet.encapsulated_pdf import (  # noqa: PLC0415 - on demand
        encapsulated_sheet,
    )

    with quietly():
        return encapsulated_sheet(
            rendition.job,
            rendition.release,
            rendition.context,
            rendition.content,
            rendition.headers,
        )


def _text_sr(rendition: Rendition) -> Document:
    return text_report(
        rendition.job,
        rendition.release,
        rendition.context,
        rendition.explanation,
        rendition.template,
    )


def _gsps(rendition: Rendition) -> Document | None:
    from hilum.report.presentation_state.state import (  # noqa: PLC0415 - on demand
        Layered,
        presentation_state,
    )

    with quietly():
        return presentation_state(
            Layered(
                rendition.job,
                rendition.release,
                rendition.context,
                rendition.sources,
                rendition.headers,
            )
        )


# Each answers None where there is nothing to show.
RENDERED: Final[Mapping[str, Callable[[Rendition], Document | None]]] = {
    SHEET.key: _sheet,
    PDF.key: _pdf,
    TEXT_SR.key: _text_sr,
    GSPS.key: _gsps,
}


def rendered(rendition: Rendition) -> Iterator[Document]:
    """Yield the rendered documents; none on a study of which no image can be read."""
    for kind in rendition.kinds:
        if kind not in RENDERED:
            continue
        try:
            made = RENDERED[kind](rendition)
        except NotAnalysed:
            if rendition.job.result.outcome is not Outcome.NOT_ANALYSED:
                raise
            continue
        if made is not None:
            yield made
