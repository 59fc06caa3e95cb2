"""`/campaigns`: campaigns, how far each is, and the series that are dead."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, Response

from hilum.api.dependencies import PartsHere
from hilum.api.fields import Cursor
from hilum.api.guard import guarded
from hilum.api.pages.campaigns.progress_box import campaign_box, campaign_line, dead_line
from hilum.api.pages.formatting import local
from hilum.api.pages.templating import PageRoute, page
from hilum.api.routes.campaigns import CampaignName, required
from hilum.domain import Scope
from hilum.verbs import NoVerb, performs

_LINES: Final = 50
_PAGE: Final = "/campaigns"


def campaign_pages() -> APIRouter:
    """Both pages. Reading needs no script."""
    router = APIRouter(
        route_class=PageRoute, include_in_schema=False, dependencies=guarded(Scope.READ)
    )
    router.add_api_route(_PAGE, campaigns)
    router.add_api_route(f"{_PAGE}/{{name}}", one_campaign)
    return router


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
def one_campaign(parts: PartsHere, name: CampaignName, cursor: Cursor = None) -> Response:
    """Show the progress of a campaign, its days, its dead series, and images without numbers."""
    found = required(parts, name)
    dead, next_cursor = parts.views.dead_series(name, limit=_LINES, cursor=cursor) or ([], None)
    now = parts.clock()
    return page(
        "campaign.html",
        section="campaigns",
        campaign=campaign_box(found, parts.campaign_end(found), now),
        dead=[dead_line(item, now) for item in dead],
        is_first=cursor is None,
        older=_older(next_cursor),
        now=local(now),
    )


def _older(cursor: str | None) -> str:
    return urlencode({"cursor": cursor}) if cursor else ""
