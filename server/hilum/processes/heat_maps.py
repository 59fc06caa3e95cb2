"""Heat maps: the reports that get one, and the sources of all documents that are drawn.

Maps come from the ledger, pixels from the archive.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable

from hilum.domain import HEAT_MAP, ActivationMaps, Outcome, Release, ReportJob
from hilum.errors import Retry
from hilum.observability import telemetry
from hilum.report import (
    BuiltReport,
    HeatMapSources,
    Picture,
    ReportContext,
    SrTemplate,
    build_report,
)
from hilum.settings import Destination, Settings
from hilum.store.archive.archives import open_archive
from hilum.store.archive.store_errors import StoreAway
from hilum.store.ledger import Ledger
from hilum.withheld_reports import Subject, cause_of

_DEADLINE_SECONDS = 60  # drawing takes less than one; the lease of a report is longer
_PROCESS_DIED = "Drawing it ended the process that tried."
log = telemetry.logger("processes")


class HeatMaps:
    """The decision on heat maps and the collection of their sources, one for a dispatcher."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._archive = open_archive(settings)
        asking = [
            name for name, item in settings.destinations.items() if HEAT_MAP.key in item.documents
        ]
        if settings.report.intended_use == "triage" and asking:
            log.warning(
                "heat_maps_suppressed",
                destinations=", ".join(asking),
                advice='report.intended_use is "triage"; see docs/reference/settings.md',
            )

    def is_wanted(self, job: ReportJob, release: Release, takers: Iterable[Destination]) -> bool:
        """Return whether a destination that wants a heat map may have it, and maps exist.

        It is also wanted where an earlier one may be: that one must not stay the latest. Never
        under the triage profile: a triage device (21 CFR 892.2080) notifies and prioritises. Its
        output does not mark, localise or highlight. A heat map would make it a detection aid, which
        is another class of device.
        """
        can_be_drawn = release.has_cam and job.result.outcome is not Outcome.NOT_ANALYSED
        if self._settings.report.intended_use == "triage" or not (
            can_be_drawn or HEAT_MAP.key in job.predecessors
        ):
            return False
        subject = Subject(job.result.is_trained, job.study.calling_ae_title, job.study.peer_address)
        return any(cause_of(destination, subject) is None for destination in takers)

    async def sources(self, job: ReportJob) -> HeatMapSources:
        """Return the files and maps of the result's images.

        After a process has died over this report there are none, so that the report goes out.
        """
        if job.lease.lapses > 0:
            return HeatMapSources({}, 0, _PROCESS_DIED)
        return await asyncio.to_thread(self._gather, job)

    def _gather(self, job: ReportJob) -> HeatMapSources:
        maps = self._ledger.activation_maps(job.result.study_instance_uid, job.result.release)
        used = {image.sop_instance_uid for image in job.result.source_images if image.is_used}
        paths = {
            item.sop_instance_uid: item.path
            for item in job.instances
            if item.sop_instance_uid in used
        }
        pictures = {uid: self._picture(path, maps, uid) for uid, path in paths.items()}
        return HeatMapSources(
            pictures,
            self._settings.analyse.maximum_pixels,
            shows_maps=self._settings.report.intended_use != "triage",
        )

    def _picture(self, path: str, maps: dict[str, ActivationMaps], uid: str) -> Picture:
        try:
            return Picture(self._archive.source(path), maps.get(uid))
        except FileNotFoundError:
            return Picture(None, maps.get(uid))
        except StoreAway as away:
            raise Retry(away.said, is_outage=True) from away


def build_in_time(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    kinds: Iterable[str],
    sources: HeatMapSources,
    template: SrTemplate | None = None,
    seconds: int = _DEADLINE_SECONDS,
) -> BuiltReport:
    """Run `build_report` in a process of a pool, with a time limit.

    Codecs are C code on foreign input: one that hangs ends its process by SIGALRM.
    """
    signal.alarm(seconds)
    try:
        return build_report(job, release, context, kinds, sources, template)
    finally:
        signal.alarm(0)
