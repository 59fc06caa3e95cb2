"""A plan and a progress on the terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import Config, campaign_app, ended, explained, migrated_settings
from hilum.domain import CampaignState
from hilum.verbs import NoVerb, performs

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from hilum.domain import Campaign
    from hilum.settings import Settings
    from hilum.store.queries.campaign_views import CampaignViews
    from hilum.store.queries.campaigns import CampaignProgress

_LOOK_SECONDS = 2.0
_OVER = (CampaignState.FINISHED, CampaignState.CANCELLED)


@campaign_app.command("status")
@performs(NoVerb("it shows counts, and no study"))
def show_status(
    name: Annotated[str, typer.Argument(help="Name of the campaign.")],
    config: Config = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every two seconds until it has ended.")
    ] = False,
) -> None:
    """Show how far a campaign is: a bar, its rate and end, its days, and the dead series."""
    settings = migrated_settings(config)
    console = _console()
    with explained(), contextlib.closing(_views(settings)) as views:
        found = _required(views, name)
        if not watch or not console.is_terminal:
            console.print(_status(settings, found))
            return
        _follow(settings, views, name, console)


def _follow(settings: Settings, views: CampaignViews, name: str, console: Console) -> None:
    from rich.live import Live  # noqa: PLC0415 - a fifth of a second

    with Live(console=console, auto_refresh=False) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            found = _required(views, name)
            live.update(_status(settings, found), refresh=True)
            if found.campaign.state in _OVER:
                return
            time.sleep(_LOOK_SECONDS)


def print_plan(settings: Settings, planned: Campaign) -> None:
    """Print the size of a plan, its days and doubts, and the next command."""
    from hilum.cli.campaigns.status_view import ASCII, BLOCKS, plan_view  # noqa: PLC0415 - imports rich
    from hilum.services.campaigns.estimate import days_of  # noqa: PLC0415 - imports the ledger

    console = _console()
    with contextlib.closing(_views(settings)) as views:
        found = _required(views, planned.name)
    marks = BLOCKS if _shows_blocks() else ASCII
    console.print(plan_view(found, days_of(settings, found), marks))
    console.print(f"next: hilum campaign run {planned.name} --release NAME@VERSION")


def _status(settings: Settings, found: CampaignProgress) -> RenderableType:
    from hilum.cli.campaigns.status_view import ASCII, BLOCKS, status_view  # noqa: PLC0415 - imports rich
    from hilum.services.campaigns.estimate import end_of  # noqa: PLC0415 - imports the ledger

    marks = BLOCKS if _shows_blocks() else ASCII
    return status_view(found, end_of(settings, found), time.time(), marks)


def _required(views: CampaignViews, name: str) -> CampaignProgress:
    found = views.campaign(name)
    if found is None:
        raise ended(2, f"there is no campaign {name}: `hilum campaign list` shows all")
    return found


def _views(settings: Settings) -> CampaignViews:
    from hilum.store.queries.campaign_views import CampaignViews  # noqa: PLC0415 - imports the ledger

    return CampaignViews(settings.ledger_url)


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415 - a fifth of a second

    return Console(highlight=False, markup=False, emoji=False)


def _shows_blocks() -> bool:
    """Return whether the terminal's character set has the characters of a bar."""
    try:
        "█░".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
