"""Documents of a result, from a template here or from the reference builder in another process.

Both write the same bytes. The way depends only on the job, its release and the settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from hilum.domain import Document, Release, ReportJob
from hilum.errors import WorkerDied
from hilum.observability import telemetry
from hilum.processes.heat_maps import build_in_time
from hilum.processes.report_pool import ReportPool
from hilum.report import (
    BuiltReport,
    HeatMapSources,
    ReportContext,
    SrTemplate,
    Unusual,
    build_documents,
    compile_template,
)

# One image's header is 1 to 10 KB. Long reading must not delay the dispatcher's other stages.
_LARGE_HEADER_BYTES = 256 << 10
_Compiling = asyncio.Future[SrTemplate | None]
log = telemetry.logger("processes")


class ReportBuilder:
    """The builder of documents, one for a dispatcher."""

    def __init__(self, pool: ReportPool, context: ReportContext) -> None:
        self._pool = pool
        self._context = context
        self._templates: dict[str, _Compiling] = {}

    def prepare(self, releases: Iterable[Release]) -> None:
        """Compile templates, so that the first result of a release need not wait for its own."""
        for release in releases:
            self._compiling(release)

    async def documents(
        self, job: ReportJob, release: Release, kinds: Iterable[str]
    ) -> list[Document]:
        """Return documents of which none is drawn.

        Raises the errors of `build_documents`, and WorkerDied.
        """
        try:
            _check(job)
            template = await self._template(release)
            with telemetry.cpu("report"):
                return build_documents(job, release, self._context, kinds, template=template)
        except Unusual as unusual:
            telemetry.REPORT_FALLBACKS.labels(unusual.reason).inc()
        return await self._pool.run(build_documents, job, release, self._context, kinds)

    async def with_pictures(
        self, job: ReportJob, release: Release, kinds: Iterable[str], sources: HeatMapSources
    ) -> BuiltReport:
        """Build a report with documents that are drawn, in another process: drawing is slow.

        Kinds may name the heat map.

        Raises the errors of `build_documents`, and WorkerDied.
        """
        try:
            template = await self._template(release)
            return await self._pool.run(
                build_in_time, job, release, self._context, kinds, sources, template
            )
        except Unusual as unusual:
            telemetry.REPORT_FALLBACKS.labels(unusual.reason).inc()
        return await self._pool.run(build_in_time, job, release, self._context, kinds, sources)

    async def _template(self, release: Release) -> SrTemplate:
        """Return the template.

        Raises Unusual, and WorkerDied; then the next caller compiles it anew.
        """
        compiling = self._compiling(release)
        if not compiling.done():
            await asyncio.wait([compiling])
        error = compiling.exception()
        if isinstance(error, WorkerDied):
            self._forget(release, compiling)
            raise error
        template = compiling.result() if error is None else None
        if template is None:
            raise Unusual("template_refused")
        return template

    def _compiling(self, release: Release) -> _Compiling:
        if release.id not in self._templates:
            compiling = asyncio.ensure_future(
                self._pool.run(compile_template, release, self._context)
            )
            compiling.add_done_callback(partial(_tell, release.id))
            self._templates[release.id] = compiling
        return self._templates[release.id]

    def _forget(self, release: Release, compiling: _Compiling) -> None:
        if self._templates.get(release.id) is compiling:
            del self._templates[release.id]


def _tell(release: str, compiling: _Compiling) -> None:
    """Log a template that could not be compiled.

    A report without a template is right, only slow, so there is no error.
    """
    if compiling.cancelled() or (compiling.exception() is None and compiling.result() is not None):
        return
    log.error(
        "report_template_refused",
        release=release,
        advice="its reports take 0.2 s each",
        exc_info=compiling.exception(),
    )


def _check(job: ReportJob) -> None:
    """Raise Unusual for a result that is built in another process from the start."""
    if job.lease.lapses > 0:
        raise Unusual("lapsed")
    if any(len(instance.header) > _LARGE_HEADER_BYTES for instance in job.instances):
        raise Unusual("large_header")
