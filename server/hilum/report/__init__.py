"""Documents of a result.

`build_documents` and `build_report` are plain functions of picklable values, for a
pool of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hilum.domain import (
    DOCUMENT_KINDS,
    FHIR,
    HEAT_MAP,
    HL7,
    JSON,
    NOTICE,
    SR,
    Document,
    Made,
    Outcome,
    Release,
    ReportJob,
    ServerReason,
)
from hilum.errors import NotAnalysed
from hilum.report.context import HeatMap, HeatMapSources, Picture, ReportContext
from hilum.report.documents import structured_report
from hilum.report.fhir.bundle import fhir_bundle
from hilum.report.hl7.oru import oru
from hilum.report.json_report import json_report, json_schema
from hilum.report.notice import notice
from hilum.report.rendition import RENDERED, Rendition, rendered
from hilum.report.sources import Extracts
from hilum.report.sr.class_preference import derive
from hilum.report.template import UNUSUAL, SrTemplate, Unusual
from hilum.report.template.compile import compile_template
from hilum.report.tree import sr_text

__all__ = [
    "RENDERED",
    "REPORTS",
    "UNUSUAL",
    "BuiltReport",
    "HeatMap",
    "HeatMapSources",
    "Picture",
    "ReportContext",
    "SrTemplate",
    "Unusual",
    "build_documents",
    "build_report",
    "compile_template",
    "derive",
    "json_schema",
    "sr_text",
]

# Each gets the report's reference to its heat map; None: no heat map was asked for.
REPORTS: Final[
    Mapping[
        str,
        Callable[
            [ReportJob, Release, ReportContext, HeatMap | None, Extracts, SrTemplate | None],
            Document,
        ],
    ]
] = {
    SR.key: structured_report,
    JSON.key: json_report,
    HL7.key: oru,
    NOTICE.key: notice,
    FHIR.key: fhir_bundle,
}


def build_documents(
    job: ReportJob,
    release: Release | None,
    context: ReportContext,
    kinds: Iterable[str] = (SR.key, JSON.key),
    heat_map: HeatMap | None = None,
    template: SrTemplate | None = None,
) -> list[Document]:
    """Return the documents of these kinds, in their order.

    A study without any readable header gets only JSON and a notice, with the reason.

    Deterministic: two builds from the same job are equal byte for byte, with a template of the
    release or without. Raises NotAnalysed(release_not_available) when the result's release is no
    longer configured, and the exceptions of `structured_report`.
    """
    if release is None:
        raise NotAnalysed(
            ServerReason.RELEASE_NOT_AVAILABLE,
            f"the result is by {job.result.release}; add it to models.releases and requeue",
        )
    extracts = Extracts(job)
    built = []
    for kind in kinds:
        try:
            built.append(REPORTS[kind](job, release, context, heat_map, extracts, template))
        except NotAnalysed:
            # A report names a patient and an image; a study without a readable image has neither.
            is_always_made = DOCUMENT_KINDS[kind].made is Made.ALWAYS
            if is_always_made or job.result.outcome is not Outcome.NOT_ANALYSED:
                raise
    return built


@dataclass(frozen=True, slots=True)
class BuiltReport:
    """The documents of a result.

    `heat_map_left_out`: why a heat map that was asked for is not drawn.

    `takes_heat_map_away`: the heat map among them is a sheet of words, for those destinations that
    may have an earlier one.
    """

    documents: list[Document]
    heat_map_left_out: str | None
    takes_heat_map_away: bool = False


def build_report(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    kinds: Iterable[str],
    sources: HeatMapSources,
    template: SrTemplate | None = None,
) -> BuiltReport:
    """Build as `build_documents`, with those of the kinds that are drawn.

    They may name the heat map, which is drawn if there is a finding to show. If it fails, the other
    documents are built. A sheet that withdraws an earlier heat map is among the documents and is
    not named. Where no heat map is asked for, the report names a result sheet that shows maps.
    Raises the exceptions of `build_documents`.
    """
    asked = tuple(kinds)
    plain = [kind for kind in asked if kind in REPORTS]
    drawn, named = (
        _heat_map(job, release, context, sources) if HEAT_MAP.key in asked else ([], None)
    )
    rendition = Rendition(job, release, context, asked, named, sources, template)
    documents = [
        *build_documents(job, release, context, plain, rendition.explanation, template),
        *rendered(rendition),
        *drawn,
    ]
    left_out = None if named is None else named.left_out
    return BuiltReport(
        documents, left_out, takes_heat_map_away=bool(drawn) and not _is_shown(named)
    )


def _heat_map(
    job: ReportJob, release: Release, context: ReportContext, sources: HeatMapSources
) -> tuple[list[Document], HeatMap | None]:
    """Return the heat map, if there is one, and the report's reference to it."""
    # Only here: these bring Pillow and the decoders, which a report without a heat map does not
    # need.
    from hilum.report.heat_map.choice import HeatMapLeftOut  # noqa: PLC0415
    from hilum.report.heat_map.secondary_capture import heat_map  # noqa: PLC0415

    try:
        made = heat_map(job, release, context, sources)
    except HeatMapLeftOut as error:
        return [], HeatMap(left_out=error.sentence)
    return ([], None) if made is None else ([made[0]], made[1])


def _is_shown(named: HeatMap | None) -> bool:
    return named is not None and bool(named.sop_instance_uid)
