"""Documents of a result: filled in here from the template of its release, or built by the reference builder in another process.

Both write the same bytes. Which way a result goes depends on nothing but the job, its release and the settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from hilum import telemetry
from hilum.domain import Document, Release, ReportJob
from hilum.errors import WorkerDied
from hilum.report import HeatMapSources, Report, ReportContext, SrTemplate, Unusual, build_documents, compile_template
from hilum.wiring.heat_maps import build_in_time
from hilum.wiring.report_pool import ReportPool

# One image's is 1 to 10 KB. What takes long to read must not hold up the dispatcher's other stages.
_LARGE_HEADER_BYTES = 256 << 10
_Compiling = asyncio.Future[SrTemplate | None]
log = telemetry.logger("wiring")


class ReportBuilder:
    """One for a dispatcher."""

    def __init__(self, pool: ReportPool, context: ReportContext) -> None:
        self._pool, self._context = pool, context
        self._templates: dict[str, _Compiling] = {}

    def prepare(self, releases: Iterable[Release]) -> None:
        """Have templates compiled, so that the first result of a release need not wait for its own."""
        for release in releases:
            self._compiling(release)

    async def documents(self, job: ReportJob, release: Release, kinds: Iterable[str]) -> list[Document]:
        """Documents without a heat map. Raises what `build_documents` raises, and WorkerDied."""
        try:
            _check(job)
            template = await self._template(release)
            with telemetry.cpu("report"):
                return build_documents(job, release, self._context, kinds, template=template)
        except Unusual as unusual:
            telemetry.REPORT_FALLBACKS.labels(unusual.reason).inc()
        return await self._pool.run(build_documents, job, release, self._context, kinds)

    async def with_heat_map(self, job: ReportJob, release: Release, kinds: Iterable[str], sources: HeatMapSources) -> Report:
        """In another process, because drawing takes its time. Raises what `build_documents` raises, and WorkerDied."""
        try:
            template = await self._template(release)
            return await self._pool.run(build_in_time, job, release, self._context, kinds, sources, template)
        except Unusual as unusual:
            telemetry.REPORT_FALLBACKS.labels(unusual.reason).inc()
        return await self._pool.run(build_in_time, job, release, self._context, kinds, sources)

    async def _template(self, release: Release) -> SrTemplate:
        """Raises Unusual, and WorkerDied; then the next caller has it compiled anew."""
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
            compiling = asyncio.ensure_future(self._pool.run(compile_template, release, self._context))
            compiling.add_done_callback(partial(_tell, release.id))
            self._templates[release.id] = compiling
        return self._templates[release.id]

    def _forget(self, release: Release, compiling: _Compiling) -> None:
        if self._templates.get(release.id) is compiling:
            del self._templates[release.id]


def _tell(release: str, compiling: _Compiling) -> None:
    """A report without a template is right, only slow; so nothing fails here, and somebody has to be told."""
    if compiling.cancelled() or (compiling.exception() is None and compiling.result() is not None):
        return
    log.error("report_template_refused", release=release, advice="its reports take 0.2 s each", exc_info=compiling.exception())


def _check(job: ReportJob) -> None:
    """What is built in another process from the start. Raises Unusual."""
    if job.lease.lapses > 0:
        raise Unusual("lapsed")
    if any(len(instance.header) > _LARGE_HEADER_BYTES for instance in job.instances):
        raise Unusual("large_header")
