"""The states of a rollout, without a ledger: the effect of each verb, and choices by study.

`docs/models/rollouts.md` draws the states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hilum.domain import Rollout, RolloutMode, RolloutState

_BUSY: Final = (RolloutState.LOADING, RolloutState.RUNNING)
# State to (next state, by which verb); drawn in the docs.
_BACK: Final = (
    (RolloutState.DONE, "stop, or rollback"),
    (RolloutState.SWITCHED, "rollback, with a way back left from before"),
)
TRANSITIONS: Final[Mapping[RolloutState, tuple[tuple[RolloutState, str], ...]]] = {
    RolloutState.LOADING: (
        (RolloutState.RUNNING, "proved, as shadow or canary"),
        (RolloutState.SWITCHED, "proved, to switch"),
        (RolloutState.REFUSED, "not loaded in time, or wrong answers"),
        *_BACK,
    ),
    RolloutState.REFUSED: ((RolloutState.LOADING, "start"), *_BACK),
    RolloutState.RUNNING: (
        (RolloutState.RUNNING, "promote, to a canary"),
        (RolloutState.SWITCHED, "promote"),
        *_BACK,
    ),
    RolloutState.SWITCHED: (
        (RolloutState.LOADING, "start"),
        (RolloutState.DONE, "stop, or rollback"),
    ),
    RolloutState.DONE: (
        (RolloutState.LOADING, "start"),
        (RolloutState.CLOSED, "the settings name another release (from any state)"),
    ),
    RolloutState.CLOSED: ((RolloutState.LOADING, "start"),),
}


class CannotRollOut(ValueError):
    """The rollout is not in a state for this verb; the text says how to proceed."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The release that is reported for a study, and its shadow."""

    release: str
    shadow: str | None = None


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """The treatment of a candidate. `fraction`: of studies, for a canary only."""

    mode: RolloutMode
    fraction: float | None = None

    def __post_init__(self) -> None:
        """Raise CannotRollOut for a fraction outside its range."""
        if (self.mode is RolloutMode.CANARY) != (self.fraction is not None):
            raise CannotRollOut("a fraction belongs to a canary, and a canary needs one")
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise CannotRollOut(
                "the fraction of a canary lies between 0 and 1; leave it out to switch"
            )


def choose(rollout: Rollout, study_uid: str) -> Chosen:
    """Choose for a study without an earlier image."""
    if rollout.state is not RolloutState.RUNNING or rollout.candidate is None:
        return Chosen(rollout.serving)
    if rollout.mode is RolloutMode.SHADOW:
        return Chosen(rollout.serving, rollout.candidate)
    is_canary = share(rollout.alias, study_uid) < (rollout.fraction or 0.0)
    return Chosen(rollout.candidate if is_canary else rollout.serving)


def share(alias: str, study_uid: str) -> float:
    """A study's number in [0, 1), uniform over studies and constant.

    A larger fraction keeps the studies of a smaller one.
    """
    return (
        int.from_bytes(hashlib.sha256(f"{alias}\x1f{study_uid}".encode()).digest()[:8], "big")
        / 2.0**64
    )


def begun(alias: str, configured: str, now: float, who: str) -> Rollout:
    """The rollout of an alias that has never been changed."""
    return Rollout(alias, configured, configured, RolloutState.DONE, now, who)


def started(rollout: Rollout, candidate: str, order: RolloutRequest) -> Rollout:
    """The rollout after `start`: the candidate is loaded; traffic goes on as before."""
    if rollout.state in _BUSY:
        raise CannotRollOut(
            f"{rollout.candidate} is being rolled out already: promote it, roll it back or stop"
            " first"
        )
    if candidate == rollout.serving:
        raise CannotRollOut(f"{candidate} reads new studies already")
    # A candidate that returns ends the way back to it.
    previous = None if candidate == rollout.previous else rollout.previous
    return replace(_with(rollout, RolloutState.LOADING, candidate, order), previous=previous)


def passed(rollout: Rollout) -> Rollout:
    """The rollout after the candidate was loaded and gave the known answers."""
    if rollout.state is not RolloutState.LOADING:
        raise CannotRollOut("nothing is being loaded")
    return (
        _switched(rollout)
        if rollout.mode is RolloutMode.SWITCH
        else replace(rollout, state=RolloutState.RUNNING, problem=None)
    )


def refused(rollout: Rollout, problem: str) -> Rollout:
    """The rollout after the candidate failed; traffic was never touched."""
    if rollout.state is not RolloutState.LOADING:
        raise CannotRollOut("nothing is being loaded")
    return replace(rollout, state=RolloutState.REFUSED, problem=problem)


def promoted(rollout: Rollout, order: RolloutRequest) -> Rollout:
    """The rollout after a step further.

    From shadow to a canary, to a larger canary, or to all new studies.
    """
    if rollout.state is not RolloutState.RUNNING:
        raise CannotRollOut(f"no candidate is running (state {rollout.state}): start one first")
    if order.mode is RolloutMode.SHADOW:
        raise CannotRollOut(
            "a candidate that runs already is not promoted to a shadow: stop it, then start it"
            " as one"
        )
    return (
        _switched(rollout)
        if order.mode is RolloutMode.SWITCH
        else _with(rollout, RolloutState.RUNNING, rollout.candidate, order)
    )


def rolled_back(rollout: Rollout) -> Rollout:
    """The rollout after a step back.

    A candidate gets no more studies; after a switch the previous release reads new ones again.
    """
    if rollout.candidate is not None:
        return _with(rollout, _settled(rollout.previous), None, None)
    if rollout.previous is None:
        raise CannotRollOut(
            f"there is no way back: {rollout.serving} serves, and no earlier release is kept"
            " loaded. Start one instead"
        )
    return replace(
        rollout, state=RolloutState.DONE, serving=rollout.previous, previous=None, problem=None
    )


def stopped(rollout: Rollout) -> Rollout:
    """The rollout after `stop`: the serving release goes on; candidate and way back are dropped."""
    if rollout.candidate is None and rollout.previous is None:
        raise CannotRollOut(f"nothing is going on: {rollout.serving} serves")
    return replace(_with(rollout, RolloutState.DONE, None, None), previous=None)


def closed(rollout: Rollout, why: str) -> Rollout:
    """The rollout after the settings have changed since it began: the settings win."""
    return replace(_with(rollout, RolloutState.CLOSED, None, None), previous=None, problem=why)


def _switched(rollout: Rollout) -> Rollout:
    assert rollout.candidate is not None
    after = replace(rollout, serving=rollout.candidate, previous=rollout.serving)
    return _with(after, RolloutState.SWITCHED, None, None)


def _settled(previous: str | None) -> RolloutState:
    return RolloutState.DONE if previous is None else RolloutState.SWITCHED


def _with(
    rollout: Rollout, state: RolloutState, candidate: str | None, order: RolloutRequest | None
) -> Rollout:
    mode, fraction = (order.mode, order.fraction) if order is not None else (None, None)
    return replace(
        rollout, state=state, candidate=candidate, mode=mode, fraction=fraction, problem=None
    )
