"""/api/v1/campaigns: old studies that a release reads again, how far that is, and its verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Path
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException

from hilum.api.answers.campaigns import (
    CampaignDetail,
    CampaignPage,
    DayList,
    DeadSeriesPage,
    campaign_answer,
    campaign_detail,
    day_list,
    dead_answer,
)
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import CampaignOperations, Dependencies, PartsHere
from hilum.api.fields import RELEASE_PATTERN, Cursor, Limit, Moment, ResponseModel
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import Campaign, CampaignOptions, CampaignState, Scope
from hilum.settings.hours import Hours
from hilum.store.audit.log import Deed
from hilum.store.campaigns.rules import CannotRun
from hilum.store.queries.campaigns import CampaignProgress
from hilum.verbs import NoVerb, Verb, performs

T = TypeVar("T")
listing = audited_router("Operations", Scope.READ, "/campaigns")
router = audited_router("Operations", Scope.OPERATE, "/campaigns")
_COUNTS_ONLY = NoVerb("it shows counts, and no study")
_UIDS_ONLY = NoVerb("it shows UIDs of series that could not be fetched, and no image or result")
CampaignName = Annotated[
    str,
    Path(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        description="Name of a campaign.",
        examples=["chest-2019"],
    ),
]


class ChangedCampaign(ResponseModel):
    """A campaign after a verb."""

    name: str
    state: CampaignState
    release: str | None = Field(description="The release that reads it; null: it never ran.")
    changed_at: Moment


class RetriedSeries(ResponseModel):
    """The outcome of a retry."""

    series: int = Field(description="Dead series that are fetched again.")


class RunOrder(ResponseModel):
    """The release that shall read, and how."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"release": "chest@2", "hours": ["20:00-06:00"]}]},
    )

    release: Annotated[str, Field(pattern=RELEASE_PATTERN, max_length=80)]
    delivers: bool = Field(default=False, description="Send the results to the destinations, too.")
    hours: Annotated[list[Hours], Field(max_length=50)] | None = Field(
        None,
        description=(
            "Fetch only then, such as `mon-fri 20:00-06:00`; an empty list: at any time; null: in"
            " the hours of its source."
        ),
    )


@listing.get("", response_model=CampaignPage, summary="List campaigns")
@performs(_COUNTS_ONLY)
def list_campaigns(parts: PartsHere, limit: Limit = 50, cursor: Cursor = None) -> dict[str, Any]:
    """List campaigns with their counts, newest first."""
    found, next_cursor = parts.views.campaigns(limit=limit, cursor=cursor)
    return {"campaigns": [campaign_answer(item) for item in found], "next_cursor": next_cursor}


@listing.get(
    "/{name}", response_model=CampaignDetail, responses=documented(404), summary="One campaign"
)
@performs(_COUNTS_ONLY)
def show_campaign(parts: PartsHere, name: CampaignName) -> dict[str, Any]:
    """How far it is, at which rate, the doubts of its plan, and why images were not read."""
    found = required(parts, name)
    return campaign_detail(found, parts.campaign_end(found))


@listing.get(
    "/{name}/days",
    response_model=DayList,
    responses=documented(404),
    summary="The days of a campaign",
)
@performs(_COUNTS_ONLY)
def list_days(parts: PartsHere, name: CampaignName) -> dict[str, Any]:
    """Series by state of each Study Date."""
    days = parts.views.campaign_days(name)
    if days is None:
        raise _no_such()
    return {"days": day_list(days)}


@listing.get(
    "/{name}/dead",
    response_model=DeadSeriesPage,
    responses=documented(404),
    summary="The dead series of a campaign",
)
@performs(_UIDS_ONLY)
def list_dead_series(
    parts: PartsHere, name: CampaignName, limit: Limit = 50, cursor: Cursor = None
) -> dict[str, Any]:
    """List series of which not all images could be fetched, with the reason, newest first."""
    found = parts.views.dead_series(name, limit=limit, cursor=cursor)
    if found is None:
        raise _no_such()
    series, next_cursor = found
    return {"series": [dead_answer(item) for item in series], "next_cursor": next_cursor}


@router.post(
    "/{name}/run",
    response_model=ChangedCampaign,
    responses=documented(400, 404, 409),
    summary="Run a planned campaign",
)
@performs(Verb.RUN_CAMPAIGN)
def run_campaign(parts: PartsHere, deed: DeedHere, name: CampaignName, order: RunOrder) -> Campaign:
    """The release is loaded, and the source is asked for the images of the plan.

    Results stay in Hilum unless `delivers` is true.
    """
    hours = None if order.hours is None else tuple(order.hours)
    options = CampaignOptions(delivers=order.delivers, hours=hours)
    required(parts, name)
    return _done(lambda: _verbs(parts).run(name, order.release, options, deed))


@router.post(
    "/{name}/pause",
    response_model=ChangedCampaign,
    responses=documented(404, 409),
    summary="Pause a campaign",
)
@performs(Verb.CHANGE_CAMPAIGN)
def pause_campaign(parts: PartsHere, deed: DeedHere, name: CampaignName) -> Campaign:
    """Fetch nothing more for now. Images that were received are read."""
    return _change(parts, deed, name, "pause")


@router.post(
    "/{name}/resume",
    response_model=ChangedCampaign,
    responses=documented(404, 409),
    summary="Resume a campaign",
)
@performs(Verb.CHANGE_CAMPAIGN)
def resume_campaign(parts: PartsHere, deed: DeedHere, name: CampaignName) -> Campaign:
    """Go on with a paused campaign."""
    return _change(parts, deed, name, "resume")


@router.post(
    "/{name}/cancel",
    response_model=ChangedCampaign,
    responses=documented(404, 409),
    summary="Cancel a campaign",
)
@performs(Verb.CHANGE_CAMPAIGN)
def cancel_campaign(parts: PartsHere, deed: DeedHere, name: CampaignName) -> Campaign:
    """End a campaign. Images that were received are read, and their results stay.

    It cannot be undone.
    """
    return _change(parts, deed, name, "cancel")


@router.post(
    "/{name}/retry",
    response_model=RetriedSeries,
    responses=documented(404, 409),
    summary="Fetch dead series again",
)
@performs(Verb.CHANGE_CAMPAIGN)
def retry_campaign(parts: PartsHere, deed: DeedHere, name: CampaignName) -> dict[str, int]:
    """Fetch dead series again, also those of a finished campaign."""
    required(parts, name)
    return {"series": _done(lambda: _verbs(parts).retry(name, deed))}


def _change(parts: Dependencies, deed: Deed, name: str, verb: str) -> Campaign:
    required(parts, name)
    return _done(lambda: _verbs(parts).change(name, verb, deed))


def _done(verb: Callable[[], T]) -> T:
    try:
        return verb()
    except CannotRun as error:
        raise HTTPException(409, str(error)) from error


def _verbs(parts: Dependencies) -> CampaignOperations:
    assert parts.campaigns is not None  # `create_app` adds these routes only then
    return parts.campaigns


def required(parts: Dependencies, name: str) -> CampaignProgress:
    """Return the campaign of this name. Raises HTTPException 404."""
    found = parts.views.campaign(name)
    if found is None:
        raise _no_such()
    return found


def _no_such() -> HTTPException:
    return HTTPException(404, "There is no such campaign; GET /api/v1/campaigns lists them.")
