"""/api/v1/rollouts: from one release to another while the server runs (docs/models/rollouts.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Path
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException

from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import PartsHere, RolloutOperations
from hilum.api.fields import RELEASE_PATTERN, Moment, ResponseModel
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import Rollout, RolloutMode, RolloutState, Scope
from hilum.store.rollouts.rules import CannotRollOut, RolloutRequest
from hilum.verbs import NoVerb, Verb, performs

listing = audited_router("Operations", Scope.READ, "/rollouts")
router = audited_router("Operations", Scope.OPERATE, "/rollouts")
_NO_STUDY = NoVerb("it shows releases, and no study")
Alias = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9._-]{1,80}$",
        description="Name of a release of the settings, without its version.",
        examples=["chest"],
    ),
]
Fraction = Annotated[float, Field(gt=0, lt=1, description="Share of new studies.", examples=[0.1])]


class RolloutAnswer(ResponseModel):
    """One alias: the release that reads, and the one that is to follow."""

    alias: str
    configured: str = Field(description="The release that the settings name.")
    serving: str = Field(description="The release that reads new studies.")
    previous: str | None = Field(description="Kept loaded for the way back.")
    candidate: str | None = Field(description="The release that is to follow.")
    mode: RolloutMode | None
    fraction: float | None = Field(description="A canary's share of new studies.")
    state: RolloutState
    problem: str | None = Field(description="Why a candidate was refused, or the rollout closed.")
    changed_at: Moment | None
    changed_by: str | None


class RolloutList(ResponseModel):
    """All aliases, by name."""

    rollouts: list[RolloutAnswer]


class EventAnswer(ResponseModel):
    """The outcome of a change."""

    verb: str
    state: RolloutState = Field(description="After it.")
    serving: str
    candidate: str | None
    detail: str | None
    changed_at: Moment
    changed_by: str


class AgreementAnswer(ResponseModel):
    """How far both agree about one finding."""

    finding: str
    studies: int
    decided: int = Field(description="Studies on which both decide; untrained weights never do.")
    flips: int = Field(description="Of these, where one says present and the other absent.")
    mean_difference: float = Field(description="Mean difference of the scores, without sign.")
    kappa: float | None = Field(
        description="Cohen's kappa of the decisions; null where only one decision occurs."
    )


class ComparisonAnswer(ResponseModel):
    """The outputs of a shadow beside those that were reported."""

    release: str
    shadow: str
    compared: int
    waiting: int = Field(
        description="Studies that the shadow, or the release reported, has not finished."
    )
    failed: int
    findings: list[AgreementAnswer] = Field(
        description="Over the studies compared last, 10,000 at most."
    )


class RolloutDetail(RolloutAnswer):
    """One alias with its history."""

    events: list[EventAnswer] = Field(description="Newest first, 50 at most.")
    comparison: ComparisonAnswer | None


class StartOrder(ResponseModel):
    """Which release shall follow, and how."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"release": "chest@2", "mode": "shadow"}]}
    )

    release: Annotated[str, Field(pattern=RELEASE_PATTERN, max_length=80)]
    mode: RolloutMode = Field(
        RolloutMode.SWITCH, description="The mode once the release is loaded and verified."
    )
    fraction: Fraction | None = Field(None, description="For a canary: its share of new studies.")


class PromoteOrder(ResponseModel):
    """How far."""

    model_config = ConfigDict(extra="forbid")

    fraction: Fraction | None = Field(
        None, description="A canary of this share; left out: all new studies."
    )


class RollbackOrder(ResponseModel):
    """The fate of studies for which the departing release was chosen."""

    model_config = ConfigDict(extra="forbid")

    pending: bool = Field(
        default=False,
        description=(
            "Those that it has not reported are read anew by the release that reads from now on."
        ),
    )


@listing.get("", response_model=RolloutList, summary="List rollouts")
@performs(_NO_STUDY)
def list_rollouts(parts: PartsHere) -> dict[str, Any]:
    """List every alias of the settings, and the release that reads for it now."""
    return {"rollouts": _verbs(parts).list()}


@listing.get(
    "/{alias}", response_model=RolloutDetail, responses=documented(404), summary="One rollout"
)
@performs(_NO_STUDY)
def show_rollout(parts: PartsHere, alias: Alias) -> Mapping[str, Any]:
    """With its history and, where a shadow has read along, how far both agree."""
    found = _verbs(parts).show(alias)
    if found is None:
        raise HTTPException(
            404, "The settings name no such alias; GET /api/v1/rollouts lists them."
        )
    return found


@router.post(
    "/{alias}/start",
    response_model=RolloutAnswer,
    responses=documented(400, 409),
    summary="Start a rollout",
)
@performs(Verb.START_ROLLOUT)
def start_rollout(parts: PartsHere, deed: DeedHere, alias: Alias, order: StartOrder) -> Rollout:
    """The release is loaded beside the one that reads and has to give its known answers.

    Until then nothing changes.
    """
    return _done(
        lambda: _verbs(parts).start(
            alias, order.release, RolloutRequest(order.mode, order.fraction), deed.actor.name, deed
        )
    )


@router.post(
    "/{alias}/promote",
    response_model=RolloutAnswer,
    responses=documented(400, 409),
    summary="One step further",
)
@performs(Verb.PROMOTE)
def promote_rollout(
    parts: PartsHere, deed: DeedHere, alias: Alias, order: PromoteOrder | None = None
) -> Rollout:
    """Promote a candidate: shadow to canary, canary to a larger one, either to all studies."""
    return _done(
        lambda: _verbs(parts).promote(
            alias, order.fraction if order else None, deed.actor.name, deed
        )
    )


@router.post(
    "/{alias}/rollback",
    response_model=RolloutAnswer,
    responses=documented(400, 409),
    summary="One step back",
)
@performs(Verb.ROLL_BACK)
def roll_back_rollout(
    parts: PartsHere, deed: DeedHere, alias: Alias, order: RollbackOrder | None = None
) -> Rollout:
    """A candidate gets no more studies.

    After a switch the previous release reads new studies again, at once.
    """
    is_pending = order is not None and order.pending
    return _done(
        lambda: _verbs(parts).roll_back(alias, deed.actor.name, is_pending=is_pending, deed=deed)
    )


@router.post(
    "/{alias}/stop",
    response_model=RolloutAnswer,
    responses=documented(409),
    summary="End a rollout",
)
@performs(Verb.STOP_ROLLOUT)
def stop_rollout(parts: PartsHere, deed: DeedHere, alias: Alias) -> Rollout:
    """End the rollout: the serving release continues alone.

    Other releases are unloaded when they have finished.
    """
    return _done(lambda: _verbs(parts).stop(alias, deed.actor.name, deed))


def _done(verb: Callable[[], Rollout]) -> Rollout:
    try:
        return verb()
    except CannotRollOut as error:
        raise HTTPException(409, str(error)) from error


def _verbs(parts: PartsHere) -> RolloutOperations:
    assert parts.rollouts is not None  # `create_app` adds these routes only then
    return parts.rollouts
