"""The handling of received instances: sender and route of their study's first image decide."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from hilum.domain import Instance, Priority
from hilum.settings import Handling, Settings
from hilum.store.intake.received import Arrival

Titles = tuple[str, str]  # the Calling and the Called AE Title


def arrivals_of(
    instances: Sequence[Instance],
    settings: Settings,
    known: Callable[[Collection[str]], Mapping[str, Titles]],
    wanted: Callable[[Collection[str]], Mapping[str, Mapping[str, int]]] = lambda _: {},
) -> list[Arrival]:
    """Return the arrivals, in the order of the instances.

    `known` returns, for studies with a row, the AE Titles of their first image. `wanted` returns
    the campaigns that wait for an image, by release; it is asked for images that came to an AE
    Title of campaigns alone.
    """
    titles = settings.campaign_titles
    live = [item for item in instances if item.called_ae_title not in titles]
    fetched = [item.sop_instance_uid for item in instances if item.called_ae_title in titles]
    campaigns = wanted(fetched) if fetched else {}
    deciding = _deciding(live, settings, known)
    handling_of = functools.cache(settings.handling_of)  # a batch comes from few senders
    arrivals = list[Arrival]()
    for instance in instances:
        uid = instance.study_instance_uid
        if instance.called_ae_title in titles:
            of_campaign = campaigns.get(instance.sop_instance_uid, {})
            arrivals.append(_fetched(instance, of_campaign, settings))
        else:
            arrival = _arrival(instance, handling_of(*deciding[uid]), settings)
            arrivals.append(replace(arrival, takes_over=titles))
    return arrivals


def _deciding(
    live: Sequence[Instance],
    settings: Settings,
    known: Callable[[Collection[str]], Mapping[str, Titles]],
) -> dict[str, Titles]:
    """Return the AE Titles that decide about each study.

    A study that only campaigns have brought is decided by its first live image.
    """
    found: Mapping[str, Titles] = {}
    if live and (settings.routes or settings.senders or settings.sources):
        found = known({instance.study_instance_uid for instance in live})
    titles = settings.campaign_titles
    deciding = {uid: pair for uid, pair in found.items() if pair[1] not in titles}
    for instance in live:
        deciding.setdefault(instance.study_instance_uid, _titles(instance))
    return deciding


def _fetched(instance: Instance, campaigns: Mapping[str, int], settings: Settings) -> Arrival:
    """Return the arrival of an image that came to an AE Title of campaigns.

    Its campaigns name the releases. If none waits for it, it is kept and not read.
    """
    handling = settings.handling_of(*_titles(instance))
    arrival = _arrival(instance, handling, settings)
    return replace(
        arrival,
        priority=Priority.REANALYSIS,
        releases=tuple(sorted(campaigns)),
        campaigns=campaigns,
    )


def _arrival(instance: Instance, handling: Handling, settings: Settings) -> Arrival:
    return Arrival(
        instance=instance,
        priority=Priority[handling.priority.upper()],
        releases=handling.releases,
        quiet_seconds=handling.quiet_seconds,
        maximum_wait_seconds=handling.maximum_wait_seconds,
        # of this sender, not of the study's: this one brings the header
        may_correct=settings.sender(instance.calling_ae_title).may_correct,
    )


def _titles(instance: Instance) -> Titles:
    return instance.calling_ae_title, instance.called_ae_title
