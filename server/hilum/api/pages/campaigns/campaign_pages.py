"""`/campaigns`: campaigns, how far each is, the series that are dead, and buttons for its verbs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import PartsHere
from hilum.api.fields import Cursor
from hilum.api.guard import guarded
from hilum.api.pages.campaigns.progress_box import campaign_box, campaign_line, dead_line
from hilum.api.pages.formatting import local
from hilum.api.pages.forms import form_of
from hilum.api.pages.templating import PageRoute, page
from hilum.api.routes import campaigns as verbs
from hilum.api.routes.campaigns import CampaignName, required
from hilum.domain import Scope
from hilum.verbs import NoVerb, Verb, performs

_LINES: Final = 50
_PAGE: Final = "/campaigns"


Done = Literal["", "paused", "resumed", "cancelled", "retried"]
_SAID: Final[Mapping[str, str]] = {
    "paused": "It is paused. Images that were received are read.",
    "resumed": "It runs again.",
    "cancelled": "It is cancelled. Images that were received are read.",
}


def campaign_pages() -> tuple[APIRouter, APIRouter]:
    """Both pages, which need no script, and the actions of their buttons."""
    reading = APIRouter(
        route_class=PageRoute, include_in_schema=False, dependencies=guarded(Scope.READ)
    )
    changing = [*guarded(Scope.OPERATE), Depends(_can_change)]
    writing = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=changing)
    reading.add_api_route(_PAGE, campaigns)
    reading.add_api_route(f"{_PAGE}/{{name}}", one_campaign)
    for verb, endpoint in (
        ("pause", pause),
        ("resume", resume),
        ("cancel", cancel),
        ("retry", retry),
    ):
        writing.add_api_route(f"{_PAGE}/{{name}}/{verb}", endpoint, methods=["POST"])
    return reading, writing


async def _can_change(parts: PartsHere) -> None:
    if parts.campaigns is None:
        raise HTTPException(404, "This process cannot change the ledger.")


@performs(NoVerb("it shows counts, and no study"))
def campaigns(parts: PartsHere, cursor: Cursor = None) -> Response:
    """Show every campaign, newest first."""
    found, next_cursor = parts.views.campaigns(limit=_LINES, cursor=cursor)
    now = parts.clock()
    return page(
        "campaigns.html",
        section="campaigns",
        lines=[campaign_line(item, now) for item in found],
        is_first=cursor is None,
        older=_older(next_cursor),
        now=local(now),
    )


@performs(NoVerb("it shows UIDs of series that could not be fetched, and no image or result"))
def one_campaign(
    parts: PartsHere,
    name: CampaignName,
    cursor: Cursor = None,
    done: Done = "",
    count: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """Show the progress of a campaign, its days, its dead series, and images without numbers.

    `done`: the action of a button just now; `count`: of how many series.
    """
    found = required(parts, name)
    dead, next_cursor = parts.views.dead_series(name, limit=_LINES, cursor=cursor) or ([], None)
    now = parts.clock()
    return page(
        "campaign.html",
        section="campaigns",
        campaign=campaign_box(found, parts.campaign_end(found), now),
        dead=[dead_line(item, now) for item in dead],
        can_change=parts.campaigns is not None,
        said=_said(done, count),
        is_first=cursor is None,
        older=_older(next_cursor),
        now=local(now),
    )


@performs(Verb.CHANGE_CAMPAIGN)
def pause(parts: PartsHere, deed: DeedHere, name: CampaignName) -> Response:
    """Fetch nothing more until it is resumed."""
    verbs.pause_campaign(parts, deed, name)
    return _back(name, "paused")


@performs(Verb.CHANGE_CAMPAIGN)
def resume(parts: PartsHere, deed: DeedHere, name: CampaignName) -> Response:
    """Go on with a paused campaign."""
    verbs.resume_campaign(parts, deed, name)
    return _back(name, "resumed")


@performs(Verb.CHANGE_CAMPAIGN)
async def cancel(
    parts: PartsHere, deed: DeedHere, request: Request, name: CampaignName
) -> Response:
    """End a campaign, if the form confirms it."""
    field = form_of(await request.body())
    if field("confirmed") != "yes":
        raise HTTPException(409, "Nothing was cancelled: the page asks first.")
    await run_in_threadpool(verbs.cancel_campaign, parts, deed, name)
    return _back(name, "cancelled")


@performs(Verb.CHANGE_CAMPAIGN)
def retry(parts: PartsHere, deed: DeedHere, name: CampaignName) -> Response:
    """Fetch its dead series again."""
    return _back(name, "retried", verbs.retry_campaign(parts, deed, name)["series"])


def _back(name: str, done: Done, count: int | None = None) -> Response:
    """The page again, by a redirect: so that to load it anew does nothing again."""
    counted = {} if count is None else {"count": count}
    return RedirectResponse(f"{_PAGE}/{name}?{urlencode({'done': done, **counted})}", 303)


def _said(done: Done, count: int) -> str:
    if done == "retried":
        return f"{count} series {'begins' if count == 1 else 'begin'} again."
    return _SAID.get(done, "")


def _older(cursor: str | None) -> str:
    return urlencode({"cursor": cursor}) if cursor else ""
