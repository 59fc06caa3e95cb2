"""Documents of a result. `build_documents` is a plain function of picklable values, for a pool of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hilum.domain import Document, Outcome, Reason, Release, ReportJob
from hilum.errors import NotAnalysed
from hilum.report.context import ReportContext
from hilum.report.json_report import json_report, json_schema
from hilum.report.structured_report import structured_report
from hilum.report.tree import sr_text

__all__ = ["REPORTS", "ReportContext", "build_documents", "json_schema", "sr_text"]

REPORTS: Final[Mapping[str, Callable[[ReportJob, Release, ReportContext], Document]]] = {"sr": structured_report, "json": json_report}
# A structured report needs an image to be about: without a number there is none, and the JSON document carries the reason.
_OF_ANALYSED_ONLY: Final = frozenset({"sr"})


def build_documents(
    job: ReportJob, release: Release | None, context: ReportContext, kinds: Iterable[str] = tuple(REPORTS)
) -> list[Document]:
    """The documents of these kinds, in their order. A result that was not analysed has no SR now, so only its JSON document.

    Deterministic: built twice from the same job they are equal byte for byte. Raises NotAnalysed(release_not_available) when the
    result's release is no longer configured, and what `structured_report` raises.
    """
    if release is None:
        raise NotAnalysed(Reason.RELEASE_NOT_AVAILABLE, f"the result is by {job.result.release}; add it to models.releases and requeue")
    is_analysed = job.result.outcome is not Outcome.NOT_ANALYSED
    wanted = [kind for kind in kinds if is_analysed or kind not in _OF_ANALYSED_ONLY]
    return [REPORTS[kind](job, release, context) for kind in wanted]
