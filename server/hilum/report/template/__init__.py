"""The structured report as a template.

It is compiled from the reference builder once for a release, and filled for each study.

Content items are compiled, not whole documents, so any number of images, findings and comments is
put together from the same pieces. A filled template is byte for byte the output of the reference
builder, and is verified on three samples before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from hilum.domain import SR, Document, Release, Result
from hilum.report.context import HeatMap, ReportContext
from hilum.report.headers.header import utc_offset
from hilum.report.sr.document_header import date_and_time, local
from hilum.report.template.equipment import Equipment
from hilum.report.template.evaluations import Evaluations
from hilum.report.template.extract import Extract
from hilum.report.template.frame import Frame
from hilum.report.template.groups import Groups
from hilum.report.template.library import LibraryTemplate
from hilum.report.template.references import Reference, References
from hilum.report.template.unusual import UNUSUAL, Unusual
from hilum.report.template.values import text, uid
from hilum.report.wording import series_description

__all__ = ["UNUSUAL", "SrTemplate", "Unusual"]


@dataclass(frozen=True, slots=True)
class SrTemplate:
    """Pieces of a structured report of one release in one installation.

    `context_items`: language, observer, procedure.
    """

    release: Release
    context: ReportContext
    sop_classes: frozenset[str]
    frame: Frame
    equipment: Equipment
    references: References
    context_items: bytes
    library: LibraryTemplate
    groups: Groups
    evaluations: Evaluations

    def fill(
        self,
        result: Result,
        images: Sequence[Extract],
        before: Sequence[Document],
        heat_map: HeatMap | None,
    ) -> bytes:
        """The Part 10 file that `structured_report.build` makes of the same. Raises Unusual."""
        if images[0].sop_class_uid not in self.sop_classes:
            raise Unusual("unknown_sop_class")
        said = dict(self._said(result, images, before, heat_map))
        return self.frame.fill(uid(result.identifiers[SR.key]), said, images[0])

    def _said(
        self,
        result: Result,
        images: Sequence[Extract],
        before: Sequence[Document],
        heat_map: HeatMap | None,
    ) -> Iterator[tuple[str, bytes]]:
        offset = utc_offset(images[0])
        created = local(result.created_at, offset)
        yield from _times(created, offset)
        yield "SOPInstanceUID", uid(result.identifiers[SR.key])
        yield "StudyInstanceUID", uid(images[0].study_instance_uid)
        yield "SeriesInstanceUID", uid(result.identifiers[SR.series])
        yield "SeriesDescription", text(series_description(result, self.context.series_title))
        yield "InstanceNumber", text(str(result.revision))
        yield (
            "ContributingEquipmentSequence",
            self.equipment.fill(result, self.release, created, images[0]),
        )
        yield (
            "CurrentRequestedProcedureEvidenceSequence",
            self._references([*map(_image, images), *_shown(heat_map)], result),
        )
        if before:
            yield "PredecessorDocumentsSequence", self._references(map(_document, before), result)
        yield "ContentSequence", self._tree(result, images, heat_map)

    def _references(self, references: Iterable[Reference], result: Result) -> bytes:
        return self.references.fill(result.study_instance_uid, references)

    def _tree(self, result: Result, images: Sequence[Extract], heat_map: HeatMap | None) -> bytes:
        parts = (
            self.context_items,
            self.evaluations.fill(result, self.release, self.context, heat_map),
            self.library.fill(images),
            self.groups.fill(result, self.release, images, heat_map),
        )
        return b"".join(parts)


def _times(created: datetime, offset: str | None) -> Iterator[tuple[str, bytes]]:
    date, time = map(text, date_and_time(created))
    yield "InstanceCreationDate", date
    yield "InstanceCreationTime", time
    yield "ContentDate", date
    yield "ContentTime", time
    if offset is not None:
        yield "TimezoneOffsetFromUTC", text(offset)


def _image(image: Extract) -> Reference:
    return Reference(image.sop_class_uid, image.sop_instance_uid, image.series_instance_uid)


def _document(document: Document) -> Reference:
    return Reference(
        document.sop_class_uid or "",
        document.sop_instance_uid or "",
        document.series_instance_uid or "",
    )


def _shown(heat_map: HeatMap | None) -> Iterator[Reference]:
    if heat_map is not None and heat_map.finding_keys:
        yield Reference(
            heat_map.sop_class_uid, heat_map.sop_instance_uid, heat_map.series_instance_uid
        )
