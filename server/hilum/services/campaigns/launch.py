"""The parts of a running campaign: its source, its store, its limits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from hilum.domain import ARCHIVE, FILES, PICTURES, Campaign
from hilum.retrieve.files.address import open_tree
from hilum.retrieve.files.files_source import FilesSource
from hilum.retrieve.files.pictures_source import PicturesSource
from hilum.retrieve.source import ImageSource, ObjectStore
from hilum.services.campaigns.archive_source import ArchiveSource
from hilum.services.campaigns.file_plans import pictures_of
from hilum.services.campaigns.gate import Gates
from hilum.services.campaigns.object_store import disk_obstacle
from hilum.services.campaigns.runner import CampaignRunner, RunnerParts
from hilum.services.campaigns.verbs import BUILT_IN
from hilum.services.sources import open_source
from hilum.settings import CMoveSource, Settings
from hilum.store.admin.reanalyse import Reanalysis
from hilum.store.archive.archives import open_archive
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.campaigns.live_queue import LiveQueue
from hilum.store.campaigns.series_queue import SeriesQueue
from hilum.store.retention.policy import RetentionPolicy


@contextlib.contextmanager
def open_runner(
    settings: Settings,
    campaign: Campaign,
    store: ObjectStore,
    campaigns: Campaigns,
    gates: Gates,
) -> Iterator[CampaignRunner]:
    """Yield the runner of one campaign, with a source of its own."""
    assert campaign.release is not None
    url = settings.ledger_url
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(
            contextlib.closing(SeriesQueue(url, campaign.id, campaign.release))
        )
        live = stack.enter_context(contextlib.closing(LiveQueue(url)))
        parts = RunnerParts(
            campaigns=campaigns,
            queue=queue,
            source=stack.enter_context(contextlib.closing(_source(settings, campaign))),
            store=store,
            reanalysis=stack.enter_context(contextlib.closing(Reanalysis(url))),
            retention=stack.enter_context(
                contextlib.closing(RetentionPolicy(url, open_archive(settings)))
            ),
            gate=gates.of(campaign),
            obstacle=Obstacle(settings, live).text,
            is_local=campaign.source in BUILT_IN,
            may_follow=isinstance(settings.sources.get(campaign.source), CMoveSource),
            quiet_seconds=_quiet_seconds(settings, campaign),
            request_seconds=_request_seconds(settings, campaign),
            titles=settings.campaign_titles,
        )
        yield CampaignRunner(campaign, parts, settings.campaigns)


def _source(settings: Settings, campaign: Campaign) -> ImageSource:
    if campaign.source == ARCHIVE:
        return ArchiveSource()
    if campaign.source == FILES:
        return FilesSource(open_tree(str(campaign.request["folder"]), settings.own_paths))
    if campaign.source == PICTURES:
        return PicturesSource(pictures_of(settings, campaign.request))
    return open_source(settings, campaign.source)


def _quiet_seconds(settings: Settings, campaign: Campaign) -> float:
    found = settings.sources.get(campaign.source)
    return 0.0 if found is None else found.quiet_seconds


def _request_seconds(settings: Settings, campaign: Campaign) -> float:
    found = settings.sources.get(campaign.source)
    return 3600.0 if found is None else found.request_seconds


class Obstacle:
    """Why nothing may be fetched now for the sake of live images, or of the disk."""

    def __init__(self, settings: Settings, live: LiveQueue) -> None:
        self._settings = settings
        self._archive = open_archive(settings)
        self._live = live

    def text(self) -> str:
        """Return the reason; empty: there is none."""
        if problem := disk_obstacle(self._settings, self._archive):
            return problem
        limit = self._settings.campaigns.live_wait_seconds
        waited = self._live.waited_seconds(time.time()) if limit else 0.0
        if limit and waited > limit:
            return f"live images have waited {waited:.0f} s for the analyser"
        return ""
