"""The gates of sources: one pace for each source, and the hours of each campaign."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from hilum.domain import Campaign
from hilum.retrieve.pace.limits import SourcePace, Wait
from hilum.retrieve.pace.timetable import Timetable
from hilum.services.campaigns.runner import Gate
from hilum.settings import Settings
from hilum.store.campaigns.campaigns import Campaigns

_DAY_SECONDS = 86_400.0


class OpenGate:
    """A source that may be asked at any time; see `runner.Gate`."""

    def closed(self) -> Wait | None:
        """Return None."""
        return None

    def ended(self, images: int, seconds: float, *, is_outage: bool) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class CampaignGate:
    """The hours of a campaign, and the pace that all campaigns of its source share."""

    timetable: Timetable
    pace: SourcePace

    def closed(self) -> Wait | None:
        """Return the wait, or None. The pace is asked last: its None permits one request."""
        now = time.time()
        if not self.timetable.is_open(now):
            opens = self.timetable.opens_at(now)
            return Wait(
                now + _DAY_SECONDS if opens is None else opens, "outside its hours", "hours"
            )
        return self.pace.closed()

    def ended(self, images: int, seconds: float, *, is_outage: bool) -> None:
        """Count a request that has ended."""
        self.pace.ended(images, seconds, is_outage=is_outage)


class Gates:
    """The gates of one process, one pace for each source. Thread-safe."""

    def __init__(self, settings: Settings, campaigns: Campaigns) -> None:
        self._settings = settings
        self._campaigns = campaigns
        self._lock = threading.Lock()
        self._paces: dict[str, SourcePace] = {}

    def of(self, campaign: Campaign) -> Gate:
        """Return the gate of a campaign."""
        section = self._settings.sources.get(campaign.source)
        hours = campaign.options.hours
        if section is None:
            return OpenGate() if hours is None else _HoursGate(Timetable.of(hours, "UTC"))
        own = section.hours if hours is None else hours
        return CampaignGate(Timetable.of(own, section.time_zone), self._pace(campaign.source))

    def _pace(self, name: str) -> SourcePace:
        """Return the pace of a source, which a campaign's own hours do not change."""
        section = self._settings.sources[name]
        with self._lock:
            if name not in self._paces:
                always = Timetable.of((), section.time_zone)
                began = always.day_end(time.time()) - _DAY_SECONDS
                today = self._campaigns.images_since(name, began)
                self._paces[name] = SourcePace(section, always, images_today=today)
            return self._paces[name]


@dataclass(frozen=True, slots=True)
class _HoursGate(OpenGate):
    """The hours of a campaign over files or the archive."""

    timetable: Timetable

    def closed(self) -> Wait | None:
        """Return the wait, or None."""
        now = time.time()
        if self.timetable.is_open(now):
            return None
        opens = self.timetable.opens_at(now)
        return Wait(now + _DAY_SECONDS if opens is None else opens, "outside its hours", "hours")
