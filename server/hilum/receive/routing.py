"""What shall happen with received instances: sender and route of their study decide, and those are of its first image."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from hilum.domain import Instance, Lane
from hilum.settings import Settings
from hilum.store.arrival import Arrival

Titles = tuple[str, str]  # the Calling and the Called AE Title


def arrivals_of(
    instances: Sequence[Instance], settings: Settings, known: Callable[[Collection[str]], Mapping[str, Titles]]
) -> list[Arrival]:
    """In their order. `known` says of studies that have a row between which AE Titles their first image went."""
    if not (settings.routes or settings.senders):
        return [arrival_of(instance, settings) for instance in instances]
    titles = dict(known({instance.study_instance_uid for instance in instances}))
    for instance in instances:
        titles.setdefault(instance.study_instance_uid, _titles(instance))
    return [arrival_of(instance, settings, titles[instance.study_instance_uid]) for instance in instances]


def arrival_of(instance: Instance, settings: Settings, titles: Titles | None = None) -> Arrival:
    """One instance; `titles` where another one decides for its study."""
    handling = settings.handling_of(*(titles or _titles(instance)))
    return Arrival(
        instance=instance,
        lane=Lane[handling.lane.upper()],
        releases=handling.releases,
        quiet_seconds=handling.quiet_seconds,
        maximum_wait_seconds=handling.maximum_wait_seconds,
    )


def _titles(instance: Instance) -> Titles:
    return instance.calling_ae_title, instance.called_ae_title
