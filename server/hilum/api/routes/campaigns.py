"""/api/v1/campaigns: old studies that a release reads again, and how far that is.

A verb of a person is one function more, on a router for the scope `operate` as in `rollouts`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
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
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.fields import Cursor, Limit
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import Scope
from hilum.store.queries.campaigns import CampaignProgress
from hilum.verbs import NoVerb, performs

listing = audited_router("Operations", Scope.READ, "/campaigns")
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


def required(parts: Dependencies, name: str) -> CampaignProgress:
    """Return the campaign of this name. Raises HTTPException 404."""
    found = parts.views.campaign(name)
    if found is None:
        raise _no_such()
    return found


def _no_such() -> HTTPException:
    return HTTPException(404, "There is no such campaign; GET /api/v1/campaigns lists them.")
