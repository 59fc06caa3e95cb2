"""When a campaign will end, and how many days of its source it needs."""

from __future__ import annotations

import math
import time
from typing import Final

from hilum.retrieve.pace.timetable import Timetable
from hilum.settings import Settings
from hilum.store.queries.campaigns import CampaignProgress

_WEEK_SECONDS: Final = 7 * 86_400.0


def end_of(settings: Settings, found: CampaignProgress, now: float | None = None) -> float | None:
    """Return when a campaign will end at its rate, within its hours; None: unknown.

    Seconds since the epoch. The rate is that of the last hour.
    """
    left = found.seconds_left
    if left is None:
        return None
    return timetable_of(settings, found).after_open_seconds(now or time.time(), left)


def days_of(settings: Settings, found: CampaignProgress) -> int | None:
    """Return how many days, or nights, a plan needs at the limits of its source.

    None: the source has no limit, or the plan does not know its images.
    """
    source = settings.sources.get(found.campaign.source)
    images = found.counts.images_expected
    if source is None or not images:
        return None
    limits = [float(source.daily_images)] if source.daily_images else []
    if source.images_per_second:
        now = time.time()
        open_share = timetable_of(settings, found).open_seconds(now, now + _WEEK_SECONDS) / 7
        limits.append(open_share * source.images_per_second)
    return math.ceil(images / min(limits)) if limits and min(limits) > 0 else None


def timetable_of(settings: Settings, found: CampaignProgress) -> Timetable:
    """Return the hours of a campaign: its own, else those of its source."""
    source = settings.sources.get(found.campaign.source)
    hours = found.campaign.options.hours
    if hours is None:
        hours = () if source is None else source.hours
    return Timetable.of(hours, "UTC" if source is None else source.time_zone)
