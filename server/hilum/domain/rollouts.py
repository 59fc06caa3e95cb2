"""How one release follows another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hilum.domain.states import RolloutState


class RolloutMode(StrEnum):
    """The work of a verified candidate.

    SHADOW: reads all, reports nothing; CANARY: a fraction of new studies; SWITCH: all of them.
    """

    SHADOW = "shadow"
    CANARY = "canary"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Rollout:
    """The replacement of one release of an alias by another.

    An alias is the name of a release of the settings, without its version.

    `configured`: named by the settings. `serving`: reads new studies. `previous`: kept loaded
    for the way back.
    `candidate`: the next one, by `mode`; `fraction` is a canary's share of studies.
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
        """All releases that must be loaded for it, the serving one first."""
        held = () if self.state is RolloutState.REFUSED else (self.candidate,)
        return tuple(
            dict.fromkeys(name for name in (self.serving, self.previous, *held) if name is not None)
        )
