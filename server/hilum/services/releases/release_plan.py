"""The releases that an analyser has to load, from settings and rollouts (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hilum.domain import Rollout, RolloutMode, RolloutState


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """The releases of settings and rollouts.

    `required`: readiness depends on them; `kept`: loaded as well; `proving`: alias by candidate.
    """

    required: frozenset[str]
    kept: frozenset[str]
    proving: Mapping[str, str]

    @property
    def all(self) -> frozenset[str]:
        """Every release to load."""
        return self.required | self.kept


def plan_of(
    active: Iterable[str], rollouts: Iterable[Rollout], campaigns: Iterable[str] = ()
) -> ReleasePlan:
    """Return the plan for the releases of settings, rollouts and campaigns (pure)."""
    standing = [item for item in rollouts if item.state is not RolloutState.CLOSED]
    serving = {item.configured: item.serving for item in standing}
    canaries = {
        item.candidate
        for item in standing
        if item.state is RolloutState.RUNNING and item.mode is RolloutMode.CANARY
    }
    required = frozenset(
        name
        for name in (*(serving.get(name, name) for name in active), *canaries)
        if name is not None
    )
    proving = {
        item.candidate: item.alias
        for item in standing
        if item.state is RolloutState.LOADING and item.candidate is not None
    }
    kept = frozenset((*(name for item in standing for name in item.releases), *campaigns))
    return ReleasePlan(required, kept - required, proving)
