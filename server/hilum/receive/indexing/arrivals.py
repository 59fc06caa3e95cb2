"""The handling of received instances: sender and route of their study's first image decide."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

from hilum.domain import Instance, Priority
from hilum.settings import Handling, Settings
from hilum.store.intake.received import Arrival

Titles = tuple[str, str]  # the Calling and the Called AE Title


def arrivals_of(
    instances: Sequence[Instance],
    settings: Settings,
    known: Callable[[Collection[str]], Mapping[str, Titles]],
) -> list[Arrival]:
    """Return the arrivals, in the order of the instances.

    `known` returns, for studies with a row, the AE Titles of their first image.
    """
    deciding: dict[str, Titles] = {}
    if settings.routes or settings.senders:
        deciding.update(known({instance.study_instance_uid for instance in instances}))
    for instance in instances:
        deciding.setdefault(instance.study_instance_uid, _titles(instance))
    handling_of = functools.cache(settings.handling_of)  # a batch comes from few senders
    return [
        _arrival(instance, handling_of(*deciding[instance.study_instance_uid]), settings)
        for instance in instances
    ]


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
