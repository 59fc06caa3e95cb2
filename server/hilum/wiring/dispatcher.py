"""The dispatcher's process: assemble, report, deliver."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

from hilum import __version__, telemetry
from hilum.assemble import Waiting, assemble
from hilum.deliver import open_lane
from hilum.domain import (
    Advance,
    DeliveryJob,
    DeliveryState,
    Document,
    Job,
    NewDocument,
    Outcome,
    Release,
    ReportJob,
    ResultState,
    StudyJob,
    StudyState,
)
from hilum.errors import Refused, Retry
from hilum.pipeline import STAGES, StageLoop
from hilum.report import ReportContext, build_documents
from hilum.settings import Destination, Settings
from hilum.store.ledger import Ledger
from hilum.wiring.charge import Charge, die_with_parent, process_name
from hilum.wiring.heartbeat import Heartbeat
from hilum.wiring.releases import load_releases
from hilum.wiring.serving import run_async, serve


def run(_charge: Charge, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Assemble studies, build reports, deliver documents."""
    run_async(stop, lambda stopping: _dispatch(settings, ledger, stopping))


async def _dispatch(settings: Settings, ledger: Ledger, stopping: asyncio.Event) -> None:
    releases = load_releases(settings)
    owner = process_name("dispatcher", os.getpid())

    def loop(stage: str, handle: Callable[[Job], Awaitable[Advance]], destination: str | None = None) -> StageLoop:
        return StageLoop(STAGES[stage], ledger, settings.pipeline, owner, handle, destination)

    with (
        Heartbeat(ledger, "dispatcher"),
        ProcessPoolExecutor(settings.pipeline.report_processes, get_context("spawn"), _start_report_process) as reports,
        contextlib.ExitStack() as lanes,
    ):
        loops = [
            loop("assemble", AssembleHandler(releases, ledger).handle),
            loop("report", ReportHandler(settings, releases, ledger, reports).handle),
        ]
        for _ in range(settings.pipeline.report_processes):
            reports.submit(os.getpid)  # starts a process: its imports take a second that no study should wait for
        for name, destination in settings.destinations.items():
            handler = lanes.enter_context(contextlib.closing(DeliverHandler(name, destination)))
            loops.append(loop("deliver", handler.handle, name))
        await serve(loops, stopping)


def _start_report_process() -> None:
    """Initialise a process of the report pool: it ends with its dispatcher, and Ctrl-C is the supervisor's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    telemetry.silence_libraries()
    die_with_parent(os.getppid())


class AssembleHandler:
    """assemble: decides what a complete study says."""

    def __init__(self, releases: Mapping[str, Release], ledger: Ledger) -> None:
        self._releases, self._namespace = releases, ledger.namespace

    async def handle(self, job: Job) -> Advance:
        """One study."""
        assert isinstance(job, StudyJob)
        decided = assemble(job, self._releases, self._namespace, time.time())
        if isinstance(decided, Waiting):
            raise Retry("the study is still growing", after_seconds=max(0.05, job.study.quiet_until - time.time()), is_outage=True)
        return Advance(StudyState.CLOSED, results=decided.results)


class ReportHandler:
    """report: builds the documents of a result, in another process because highdicom takes 0.2 s of CPU."""

    def __init__(self, settings: Settings, releases: Mapping[str, Release], ledger: Ledger, pool: ProcessPoolExecutor) -> None:
        self._settings, self._releases, self._pool = settings, releases, pool
        self._context = ReportContext(
            manufacturer=settings.report.manufacturer,
            series_number=settings.report.series_number,
            disclaimer=settings.report.disclaimer,
            site_name=settings.site.name,
            software_version=__version__,
            installation_serial=ledger.namespace.hex[:16],
        )

    async def handle(self, job: Job) -> Advance:
        """One result."""
        assert isinstance(job, ReportJob)
        release = self._releases.get(job.result.release)
        if release is None:
            raise Refused("release_not_available", f"{job.result.release} has no manifest any more; put it back and requeue")
        kinds = ("sr", "json") if job.result.outcome is not Outcome.NOT_ANALYSED else ("json",)
        started = time.perf_counter()
        documents = await asyncio.get_running_loop().run_in_executor(self._pool, build_documents, job, release, self._context, kinds)
        telemetry.REPORT_SECONDS.labels("+".join(kinds)).observe(time.perf_counter() - started)
        return Advance(ResultState.REPORTED, documents=[self._address(document, job) for document in documents])

    def _address(self, document: Document, job: ReportJob) -> NewDocument:
        """Where a document goes. Untrained weights go only where somebody asked for them (promise 8)."""
        takers = {name: item for name, item in self._settings.destinations.items() if document.kind in item.documents}
        allowed = tuple(name for name, item in takers.items() if job.result.is_trained or item.accept_untrained)
        withheld = {name: "untrained_weights" for name in takers if name not in allowed}
        return NewDocument(document, allowed, withheld)


class DeliverHandler:
    """deliver: one destination's lane, one document at a time in the lane's own thread."""

    def __init__(self, name: str, destination: Destination) -> None:
        self._name = name
        self._lane = open_lane(name, destination)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"lane-{name}")

    async def handle(self, job: Job) -> Advance:
        """One document."""
        assert isinstance(job, DeliveryJob)
        started = time.perf_counter()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._lane.deliver, job.document)
        telemetry.DELIVER_SECONDS.labels(self._name).observe(time.perf_counter() - started)
        if job.document.kind == "sr":
            now = time.time()
            telemetry.LAST_IMAGE_TO_ACCEPTED_SECONDS.labels(self._name).observe(now - job.last_received_at)
            telemetry.QUIET_END_TO_ACCEPTED_SECONDS.labels(self._name).observe(max(0.0, now - job.quiet_until))
        return Advance(DeliveryState.DELIVERED)

    def close(self) -> None:
        """Release the association."""
        self._thread.submit(self._lane.close).result(timeout=10)
        self._thread.shutdown()
