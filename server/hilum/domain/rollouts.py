"""How one release follows another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hilum.domain.states import RolloutState


class RolloutMode(StrEnum):
    """What a proved candidate does.

    SHADOW: reads all, reports nothing; CANARY: a fraction of new studies; SWITCH: all of them.
    """

    SHADOW = "shadow"
    CANARY = "canary"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Rollout:
    """How one alias goes from one release to another.

    An alias is the name of a release of the settings, without its version.

    `configured`: what the settings name. `serving`: what reads new studies. `previous`: kept loaded
    for the way back.
    `candidate`: what shall follow, by `mode`; `fraction` is a canary's share of studies.
    """

    alias: str
    configured: str
    serving: str
    state: RolloutState
    changed_at: float
    changed_by: str
    previous: str | None = None
    candidate: str | None = None
    mode: RolloutMode | None = None
    fraction: float | None = None
    problem: str | None = None

    @property
    def releases(self) -> tuple[str, ...]:
        """All that must be loaded for it: what serves first."""
        held = () if self.state is RolloutState.REFUSED else (self.candidate,)
        return tuple(
            dict.fromkeys(name for name in (self.serving, self.previous, *held) if name is not None)
        )
