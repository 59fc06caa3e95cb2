"""The verbs of a campaign, and the states in which each is permitted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hilum.domain import Campaign, CampaignState


class CannotRun(Exception):
    """The verb is not possible now; the text contains the remedy."""


# For each verb: the states from which it leads, and the state after it.
VERBS: Final[Mapping[str, tuple[frozenset[CampaignState], CampaignState]]] = {
    "run": (frozenset((CampaignState.PLANNED,)), CampaignState.RUNNING),
    "pause": (frozenset((CampaignState.RUNNING,)), CampaignState.PAUSED),
    "resume": (frozenset((CampaignState.PAUSED,)), CampaignState.RUNNING),
    "cancel": (
        frozenset(
            (
                CampaignState.PLANNING,
                CampaignState.PLANNED,
                CampaignState.RUNNING,
                CampaignState.PAUSED,
            )
        ),
        CampaignState.CANCELLED,
    ),
}
# Verbs that change nothing where the campaign is in their state already.
_REPEATABLE: Final = ("pause", "resume", "cancel")
_ADVICE: Final[Mapping[CampaignState, str]] = {
    CampaignState.PLANNING: "`hilum campaign plan` with the same options completes the plan",
    CampaignState.PLANNED: "`hilum campaign run` begins it",
    CampaignState.RUNNING: "`hilum campaign status` shows it",
    CampaignState.PAUSED: "`hilum campaign resume` continues it",
    CampaignState.FINISHED: "`hilum campaign retry` begins dead series again",
    CampaignState.CANCELLED: "plan a new campaign; images that are known are not fetched again",
}


def after(known: Campaign, verb: str) -> CampaignState:
    """Return the state after a verb. Raises CannotRun."""
    permitted, state = VERBS[verb]
    if known.state in permitted or (verb in _REPEATABLE and known.state is state):
        return state
    raise CannotRun(
        f"campaign {known.name} is {known.state}, so {verb} is not possible: {_ADVICE[known.state]}"
    )
