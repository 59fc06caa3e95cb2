"""What shall happen with received instances: the route of their study decides, and a study's route is that of its first image."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from hilum.domain import Instance, Lane
from hilum.settings import Settings
from hilum.store.recording import Arrival


def arrivals_of(instances: Sequence[Instance], settings: Settings, known: Callable[[Collection[str]], Mapping[str, str]]) -> list[Arrival]:
    """In their order. `known` says of studies that have a row to which AE Title their first image was sent."""
    if not settings.routes:
        return [arrival_of(instance, settings) for instance in instances]
    called = dict(known({instance.study_instance_uid for instance in instances}))
    for instance in instances:
        called.setdefault(instance.study_instance_uid, instance.called_ae_title)
    return [arrival_of(instance, settings, called[instance.study_instance_uid]) for instance in instances]


def arrival_of(instance: Instance, settings: Settings, called_ae_title: str | None = None) -> Arrival:
    """One instance; `called_ae_title` where another one decides for its study."""
    route = settings.route_of(instance.called_ae_title if called_ae_title is None else called_ae_title)
    usual = settings.studies.quiet_for(instance.calling_ae_title)
    return Arrival(
        instance=instance,
        lane=Lane[route.lane.upper()],
        releases=route.releases or settings.models.releases,
        quiet_seconds=usual if route.quiet_seconds is None else route.quiet_seconds,
        maximum_wait_seconds=settings.studies.maximum_wait_seconds,
    )
