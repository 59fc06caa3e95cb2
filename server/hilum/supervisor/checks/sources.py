"""Checks of sources and of campaigns that run. No query is sent to a source."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from hilum.domain import Campaign, CampaignState, SeriesState
from hilum.services.campaigns.estimate import timetable_of
from hilum.services.campaigns.verbs import BUILT_IN
from hilum.settings import DicomwebSource, Settings, SourceSection
from hilum.settings.sources import DimseSource
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.queries.campaigns import CampaignProgress
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import Check, accepts, unless_refused
from hilum.supervisor.checks.peers import secret_files, tls_files

_HOUR_SECONDS: Final = 3600.0
# As in the alert HilumCampaignDead.
_LEAST_ENDED: Final = 100
_DEAD_SHARE: Final = 0.01
_HTTPS_PORT: Final = 443
_HTTP_PORT: Final = 80


def sources(settings: Settings) -> Iterator[Check]:
    """Check whether each source accepts connections, and its files."""
    for name, section in settings.sources.items():
        yield from unless_refused(f"source {name}", _source(name, section))


def _source(name: str, section: SourceSection) -> Iterator[Check]:
    title = f"source {name}"
    hours = f"{', '.join(section.hours)} {section.time_zone}" if section.hours else "any time"
    advice = (
        "Nothing answers there: check host, port and firewall; its campaigns wait. `hilum sources"
        f" probe {name}` says more."
    )
    detail = f"{section.kind}, {section.address}, {hours}"
    place = _place(section)
    is_there = place is not None and accepts(*place)
    yield Check(title, is_there, detail, advice)
    if isinstance(section, DicomwebSource):
        yield from secret_files(title, f"sources.{name}", section)
    if isinstance(section, DimseSource | DicomwebSource):
        yield from tls_files(title, f"sources.{name}", section)


def _place(section: SourceSection) -> tuple[str, int] | None:
    """Return host and port of a source."""
    if isinstance(section, DimseSource):
        return section.host, section.port
    if not isinstance(section, DicomwebSource):
        return None
    url = urlsplit(section.url)
    port = _HTTPS_PORT if url.scheme == "https" else _HTTP_PORT
    return url.hostname or "", url.port or port


def campaigns(settings: Settings) -> Iterator[Check]:
    """Check each campaign that runs: that it moves, and how many of its series are dead."""
    url = settings.ledger_url
    with (
        contextlib.closing(Campaigns(url)) as known,
        contextlib.closing(LedgerViews(url)) as views,
    ):
        for item in known.all():
            if item.state is not CampaignState.RUNNING:
                continue
            found = views.campaign(item.name)
            if found is not None:
                yield _campaign(settings, found)


def _campaign(settings: Settings, found: CampaignProgress) -> Check:
    item = found.campaign
    counts = found.counts
    dead = counts.series.get(SeriesState.DEAD, 0)
    title = f"campaign {item.name}"
    detail = f"{counts.ended_series} of {counts.all_series} series ended, {dead} dead"
    if not _is_known(settings, item):
        advice = f"Put [sources.{item.source}] back, or `hilum campaign cancel {item.name}`."
        return Check(title, ok=False, detail=f"{detail}; its source is gone", advice=advice)
    if _is_stuck(settings, found, time.time()):
        reason = item.detail or "no reason is known: see the log of the retriever"
        advice = f"`hilum campaign status {item.name}` shows it."
        detail = f"{detail}; no series ended in the last hour: {reason}"
        return Check(title, ok=False, detail=detail, advice=advice)
    if counts.ended_series >= _LEAST_ENDED and dead > _DEAD_SHARE * counts.ended_series:
        advice = (
            f"See why: `hilum campaign status {item.name}`; then `hilum campaign retry"
            f" {item.name}`."
        )
        return Check(title, ok=False, detail=detail, advice=advice)
    return Check(title, ok=True, detail=detail)


def _is_known(settings: Settings, item: Campaign) -> bool:
    return item.source in BUILT_IN or item.source in settings.sources


def _is_stuck(settings: Settings, found: CampaignProgress, now: float) -> bool:
    """Return whether nothing ended in an hour in which the campaign could fetch."""
    began = found.campaign.started_at or now
    if found.recent.series_in_hour or now - began < _HOUR_SECONDS:
        return False
    hours = timetable_of(settings, found)
    return hours.open_seconds(now - _HOUR_SECONDS, now) > _HOUR_SECONDS - 1.0
