"""The documents that the server sends.

From the template of the release, as its dispatcher fills it.
"""

from __future__ import annotations

from collections.abc import Iterable

from hilum.domain import Document, Release, ReportJob
from hilum.report import HeatMap, SrTemplate, build_documents, compile_template
from tests.support.reports.results import CONTEXT

_compiled: dict[str, SrTemplate] = {}


def template_of(release: Release) -> SrTemplate:
    """Compiled once for each release."""
    key = repr(release)
    if key not in _compiled:
        template = compile_template(release, CONTEXT)
        assert template is not None, "it does not write its samples as the reference does"
        _compiled[key] = template
    return _compiled[key]


def sent(
    job: ReportJob,
    release: Release,
    kinds: Iterable[str] = ("sr", "json"),
    heat_map: HeatMap | None = None,
) -> list[Document]:
    """The documents of a result; fails when the template cannot say them."""
    return build_documents(job, release, CONTEXT, kinds, heat_map, template_of(release))
