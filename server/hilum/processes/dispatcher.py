"""The dispatcher's process: assemble, report, deliver."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from hilum import __version__
from hilum.assemble import WaitingStudy, assemble
from hilum.deliver import SopClassRefused
from hilum.deliver.destinations import DestinationClients
from hilum.domain import (
    DOCUMENT_KINDS,
    HEAT_MAP,
    SR_KINDS,
    Advance,
    DeliveryJob,
    DeliveryState,
    Document,
    DocumentKind,
    Job,
    Made,
    NewDocument,
    Outcome,
    Release,
    ReportJob,
    Result,
    ResultState,
    RuleDecision,
    ServerReason,
    StudyJob,
    StudyState,
)
from hilum.errors import Refused, Retry
from hilum.observability import telemetry, tracing
from hilum.one_thread import OneThread
from hilum.pipeline import STAGES, TURN_SECONDS, StageLoop, delivery_stage
from hilum.processes.commitment_handler import CommitHandler
from hilum.processes.commitment_loop import CommitmentLoop
from hilum.processes.comparison_handler import CompareHandler
from hilum.processes.heartbeat import Heartbeat, begin_life
from hilum.processes.heat_maps import HeatMaps
from hilum.processes.report_builder import ReportBuilder
from hilum.processes.report_pool import ReportPool
from hilum.processes.run_stages import readiness_of, run_async, serve
from hilum.processes.workitem_performers import performing
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.receive.headers.patient import identity_of
from hilum.report import RENDERED, REPORTS, BuiltReport, ReportContext, derive
from hilum.services.launch_spec import LaunchSpec
from hilum.services.releases.releases import Catalogue
from hilum.services.rules.study_facts import facts_of_study
from hilum.settings import (
    CStoreDestination,
    Destination,
    Pipeline,
    Settings,
    message_settings,
)
from hilum.store.database.engines import AWAY, error_text
from hilum.store.ledger import Ledger
from hilum.store.queue import asked_commitments
from hilum.store.rollouts.rollouts import Rollouts
from hilum.withheld_reports import Cause, Subject, cause_of

_CLOSE_SECONDS = 10.0  # until a client that does not close is abandoned
_EPOCH_SECONDS = 1.0
_COLLECT_SECONDS = 5.0  # documents of this time share a request for storage commitment
log = telemetry.logger("processes")


def run(_spec: LaunchSpec, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Assemble studies, build reports, deliver documents."""
    run_async(stop, lambda stopping: _dispatch(settings, ledger, stopping))


async def _dispatch(settings: Settings, ledger: Ledger, stopping: asyncio.Event) -> None:
    releases = Catalogue(settings, Rollouts(settings.ledger_url).manifest)
    owner = begin_life(ledger, "dispatcher")

    def loop(
        stage: str, handle: Callable[[Job], Awaitable[Advance]], *next_loops: StageLoop
    ) -> StageLoop:
        return StageLoop(
            STAGES[stage], ledger, settings.pipeline, owner, handle, next_loops=next_loops
        )

    loops: list[StageLoop] = []
    with (
        Heartbeat(ledger, "dispatcher", lambda: readiness_of(loops)),
        ReportPool(settings.pipeline.report_processes, settings.analyse.maximum_pixels) as reports,
        contextlib.ExitStack() as handlers,
    ):
        reporting = ReportHandler(settings, releases, ledger, reports)
        reporting.prepare(settings.active_releases)
        delivering = [
            handlers.enter_context(
                contextlib.closing(DeliverHandler(name, destination, reports, settings.pipeline))
            ).loop(ledger, owner)
            for name, destination in settings.destinations.items()
        ]
        asking = _commitment_loops(settings, ledger, owner)
        committing = handlers.enter_context(contextlib.closing(CommitHandler(settings, ledger)))
        # All stages from the quiet period's end to the PACS are in one process. Where it has free
        # places, its results go on without a claim.
        report = loop("report", reporting.handle, *delivering)
        loops += [
            loop("assemble", AssembleHandler(releases, ledger).handle, report),
            loop("compare", CompareHandler(releases, ledger.namespace).handle),
            report,
            loop("commit", committing.handle),
            *delivering,
        ]
        background = [performing(settings, ledger, owner)] if settings.workitems else ()
        await serve([*loops, *asking], stopping, background)


def _commitment_loops(settings: Settings, ledger: Ledger, owner: str) -> list[CommitmentLoop]:
    """Return a loop for each destination that is asked for storage commitment; end other rows."""
    reports_taken = TakenReports(settings, ledger)
    ledger.forget_commitments_of_others(
        [name for name, item in settings.destinations.items() if item.commitment_scps]
    )
    return [
        CommitmentLoop(name, destination, ledger, settings.pipeline, owner, reports_taken)
        for name, destination in settings.destinations.items()
        if isinstance(destination, CStoreDestination) and destination.commitment
    ]


class AssembleHandler:
    """assemble: decides the results of a complete study."""

    def __init__(self, releases: Mapping[str, Release], ledger: Ledger) -> None:
        self._releases = releases
        self._ledger = ledger
        self._namespace = ledger.namespace
        self._epoch = ledger.begin_epoch()
        self._looked_at = time.monotonic()

    async def handle(self, job: Job) -> Advance:
        """Handle one study."""
        assert isinstance(job, StudyJob)
        epoch = await self._epoch_now()
        with telemetry.cpu("aggregate"):
            decided = assemble(
                job, self._releases, self._namespace, time.time(), identity_of, epoch
            )
        if isinstance(decided, WaitingStudy):
            raise Retry(
                "the study is still growing",
                after_seconds=max(0.05, job.study.quiet_until - time.time()),
                is_outage=True,
            )
        if tracing.is_on():
            _write_root(job)
        _warn_of_conflicts(decided.results)
        return Advance(StudyState.CLOSED, results=decided.results)

    async def _epoch_now(self) -> str:
        """Return the epoch, which is read again while this runs.

        A standby of the ledger may have been promoted without the last commits.
        """
        if time.monotonic() - self._looked_at > _EPOCH_SECONDS:
            try:
                self._epoch = await asyncio.to_thread(self._ledger.begin_epoch)
            except AWAY as error:
                raise Retry(f"the ledger is away: {error_text(error)}", is_outage=True) from error
            self._looked_at = time.monotonic()
        return self._epoch


def _warn_of_conflicts(results: Iterable[Result]) -> None:
    for result in results:
        if result.reason == ServerReason.PATIENT_CONFLICT:
            advice = "correct the wrong Patient ID and send that image again, or reject it"
            log.warning(
                "patient_conflict",
                study_instance_uid=result.study_instance_uid,
                release=result.release,
                advice=advice,
            )


def _write_root(job: StudyJob) -> None:
    study = job.study
    is_first = not job.current_results
    said: tracing.Attributes = {
        "images": len(job.instances),
        "calling_ae_title": study.calling_ae_title,
        "priority": study.priority.name.lower(),
    }
    tracing.study(
        study.study_instance_uid, study.first_received_at, time.time(), said, is_first=is_first
    )


class ReportHandler:
    """report: builds the documents of a result."""

    def __init__(
        self, settings: Settings, releases: Mapping[str, Release], ledger: Ledger, pool: ReportPool
    ) -> None:
        self._settings = settings
        self._releases = releases
        self._heat_maps = HeatMaps(settings, ledger)
        context = ReportContext(
            manufacturer=settings.report.manufacturer,
            series_number=settings.report.series_number,
            heat_map_series_number=settings.report.heat_map_series_number,
            sheet_series_number=settings.report.sheet_series_number,
            pdf_series_number=settings.report.pdf_series_number,
            text_series_number=settings.report.text_series_number,
            gsps_series_number=settings.report.gsps_series_number,
            disclaimer=settings.report.disclaimer,
            site_name=settings.site.name,
            software_version=__version__,
            installation_serial=ledger.serial,
            hl7=message_settings(settings.destinations),
            patient_id_system=settings.report.patient_id_system,
        )
        self._builder = ReportBuilder(pool, context)
        # Old studies that a campaign reads and delivers are a series of their own in the PACS.
        self._builder_of_campaigns = ReportBuilder(
            pool,
            replace(
                context,
                series_number=settings.report.campaign_series_number,
                series_title=settings.report.campaign_series_title,
            ),
        )
        self._delivers = functools.cache(ledger.campaign_delivers)

    def prepare(self, releases: Iterable[str]) -> None:
        """Compile the templates of these releases."""
        self._builder.prepare(self._releases[name] for name in releases)

    async def handle(self, job: Job) -> Advance:
        """Handle one result."""
        assert isinstance(job, ReportJob)
        release = self._releases.get(job.result.release)
        if release is None:
            raise Refused(
                "release_not_available",
                f"{job.result.release} has no manifest any more; put it back and requeue",
            )
        kinds = tuple(
            kind for kind in (*REPORTS, *RENDERED) if self._is_due(DOCUMENT_KINDS[kind], job)
        )
        started = time.perf_counter()
        report = await self._build(job, release, kinds)
        telemetry.REPORT_SECONDS.labels("+".join(item.kind for item in report.documents)).observe(
            time.perf_counter() - started
        )
        left_out = report.heat_map_left_out
        values = {} if left_out is None else {"detail": f"heat map left out: {left_out}"}
        documents = [
            self._address(document, job, takes_away=report.takes_heat_map_away)
            for document in report.documents
        ]
        _say_reported(job, documents)
        return Advance(ResultState.REPORTED, values, documents=documents)

    def _is_due(self, kind: DocumentKind, job: ReportJob) -> bool:
        """Return whether a document of this kind is made of the result."""
        if not _has_uid(kind, job):
            return False
        return (
            kind.made is Made.ALWAYS
            or (kind.made is Made.WITH_FINDINGS and _has_findings(job))
            or any(self._wants(kind.key, name, job) for name in self._settings.destinations)
        )

    async def _build(self, job: ReportJob, release: Release, kinds: tuple[str, ...]) -> BuiltReport:
        # A report that goes nowhere needs no series of its own, whose template takes a second.
        campaign = job.result.campaign_id
        is_of_campaign = campaign is not None and self._delivers(campaign)
        builder = self._builder_of_campaigns if is_of_campaign else self._builder
        takers = [
            item
            for name, item in self._settings.destinations.items()
            if self._wants(HEAT_MAP.key, name, job)
        ]
        is_wanted = self._heat_maps.is_wanted(job, release, takers)
        if not is_wanted and RENDERED.keys().isdisjoint(kinds):
            return BuiltReport(await builder.documents(job, release, kinds), None)
        sources = await self._heat_maps.sources(job)
        wanted = (*kinds, HEAT_MAP.key) if is_wanted else kinds
        return await builder.with_pictures(job, release, wanted, sources)

    def _address(
        self, document: Document, job: ReportJob, *, takes_away: bool = False
    ) -> NewDocument:
        """Return a document with its destinations.

        Results of untrained weights go only to destinations that accept them, and withheld
        documents are logged. `takes_away`: the heat map is a sheet that withdraws an earlier one.
        It goes only to destinations that have had one.
        """
        takers = {
            name: item
            for name, item in self._settings.destinations.items()
            if self._wants(document.kind, name, job)
        }
        if takes_away and document.kind == HEAT_MAP.key:
            takers = {
                name: item
                for name, item in takers.items()
                if name in job.holders.get(HEAT_MAP.key, ())
            }
        subject = Subject(job.result.is_trained, job.study.calling_ae_title, job.study.peer_address)
        causes = {
            name: cause for name, item in takers.items() if (cause := cause_of(item, subject))
        }
        _warn_of_withheld(document, job, causes)
        withheld = {name: cause.reason for name, cause in causes.items()}
        return NewDocument(
            document, tuple(name for name in takers if name not in withheld), withheld
        )

    def _wants(self, kind: str, name: str, job: ReportJob) -> bool:
        """Return whether a destination takes this document.

        It does if the rule of the study names it, or if it has an earlier report. A study that was
        not analysed is reported where the settings require it, and wherever an earlier report is.
        The numbers of that one are no longer valid, so it gets a successor. Else the result of a
        campaign goes to no destination, unless the campaign delivers.
        """
        is_holder = name in job.holders.get(kind, ())
        has_earlier = name in job.delivered_reports or is_holder
        campaign_id = job.result.campaign_id
        is_kept_here = campaign_id is not None and not self._delivers(campaign_id)
        if not has_earlier and (is_kept_here or not self._leads_to(name, job)):
            return False
        destination = self._settings.destinations[name]
        is_silent = (
            DOCUMENT_KINDS[kind].says_findings
            and not _has_findings(job)
            and not destination.report_not_analysed
            and not has_earlier
        )
        return kind in destination.documents and not is_silent

    def _leads_to(self, name: str, job: ReportJob) -> bool:
        """Return whether the rules send the documents of this study there."""
        decision = job.study.decision or self._decided_late(job)
        return name in self._settings.handling(decision).destinations

    def _decided_late(self, job: ReportJob) -> RuleDecision | None:
        """Return the decision of the rules as they are now: the study is older than they are."""
        table = self._settings.rule_table
        if table is None:
            return None
        first = min(job.instances, key=lambda item: item.id, default=None)
        return table.decide(facts_of_study(job.study, first, self._settings))


def _say_reported(job: ReportJob, documents: Iterable[NewDocument]) -> None:
    """Log one line for each report of a study.

    The number of present findings is left out, because it is information about a patient.
    """
    result = job.result
    said = {
        name: getattr(result, name)
        for name in ("study_instance_uid", "release", "revision", "outcome", "reason")
    }
    used = sum(image.is_used for image in result.source_images)
    counts = {
        "images": len(result.source_images),
        "images_used": used,
        "findings": len(result.findings),
    }
    goes_to = sorted({name for new in documents for name in new.destinations})
    log.info("study_reported", **said, **counts, destinations=", ".join(goes_to) or "none")


def _warn_of_withheld(document: Document, job: ReportJob, causes: Mapping[str, Cause]) -> None:
    for name, cause in causes.items():
        log.warning(
            "document_withheld",
            study_instance_uid=job.result.study_instance_uid,
            release=job.result.release,
            document=document.kind,
            destination=name,
            reason=cause.reason,
            advice=(
                f"{cause.advice.format(name=name)}; then restart and `hilum requeue deliver"
                f" --destination {name}`"
            ),
        )


def _has_uid(kind: DocumentKind, job: ReportJob) -> bool:
    """Return whether the result got UIDs for this kind of document.

    One of an earlier program has none for a newer kind. It goes out without such documents, because
    a UID is minted with its result and never later.
    """
    return not kind.is_dicom or {kind.key, kind.series} <= job.result.identifiers.keys()


def _has_findings(job: ReportJob) -> bool:
    return job.result.outcome is not Outcome.NOT_ANALYSED


class DeliverHandler:
    """deliver: one destination, one document at a time in a thread of its own.

    `clock`: seconds, for the turns of documents that are claimed together.
    """

    def __init__(
        self,
        name: str,
        destination: Destination,
        pool: ReportPool,
        settings: Pipeline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._stage = delivery_stage(destination)
        self._is_committed = bool(destination.commitment_scps)
        self._clients = DestinationClients(name, destination, settings)
        self._thread = OneThread(f"deliver-{name}")

    async def handle(self, job: Job) -> Advance:
        """Deliver one document."""
        assert isinstance(job, DeliveryJob)
        started = time.perf_counter()
        try:
            await self._thread.call(partial(self._send, job, self._clock()))
        except SopClassRefused as error:
            return await self._step_down(job, error)
        telemetry.DELIVER_SECONDS.labels(self._name).observe(time.perf_counter() - started)
        # a document that is sent again is not late
        if job.document.kind in SR_KINDS and job.delivered_at is None:
            now = time.time()
            telemetry.LAST_IMAGE_TO_ACCEPTED_SECONDS.labels(self._name).observe(
                now - job.last_received_at
            )
            telemetry.QUIET_END_TO_ACCEPTED_SECONDS.labels(self._name).observe(
                max(0.0, now - job.quiet_until)
            )
        return Advance(DeliveryState.DELIVERED, self._to_be_committed(job.document))

    def _to_be_committed(self, document: Document) -> Mapping[str, object]:
        """Return the columns of a document for which the destination is to be asked."""
        if not self._is_committed or document.sop_instance_uid is None:
            return {}
        return asked_commitments.due(time.time() + _COLLECT_SECONDS)

    def loop(self, ledger: Ledger, owner: str) -> StageLoop:
        """Return the loop of this destination's deliveries."""
        return StageLoop(
            self._stage,
            ledger,
            self._settings,
            owner,
            self.handle,
            self._name,
            has_room=self.has_room,
        )

    def has_room(self) -> bool:
        """Return False while the destination is away and no probe is due."""
        return self._clients.has_room()

    def _send(self, job: DeliveryJob, claimed_at: float) -> None:
        """Send it, unless its lease could end meanwhile: another host would send it, too."""
        if self._clock() - claimed_at > TURN_SECONDS:
            raise Retry(
                "the documents before it took long; it waits for another turn",
                after_seconds=0.0,
                is_outage=True,
            )
        with telemetry.cpu("deliver"):
            self._clients.of(job).deliver(job.document)

    async def _step_down(self, job: DeliveryJob, error: SopClassRefused) -> Advance:
        """Store the same report in the class that the receiver takes, as a new document."""
        derived = await self._pool.run(
            derive, job.document, error.accepted, job.identifiers[error.accepted.kind]
        )
        ended = {"reason": "class_ladder", "detail": error.detail}
        return Advance(
            DeliveryState.CANCELLED, ended, documents=[NewDocument(derived, (self._name,))]
        )

    def close(self) -> None:
        """Release the association after the end of the thread that used it.

        A thread that hangs must not keep its process from ending.
        """
        if self._thread.close(_CLOSE_SECONDS):
            self._clients.close()
        else:
            log.warning(
                "delivery_interrupted",
                destination=self._name,
                advice="its current delivery is sent again",
            )
