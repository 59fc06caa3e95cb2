"""Campaigns: a release reads a fixed set of old studies."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hilum.cli.frame import (
    Config,
    acting,
    campaign_app,
    ended,
    explained,
    migrated_settings,
    performs,
)
from hilum.domain import ARCHIVE, Campaign, CampaignOptions
from hilum.verbs import NoVerb, Thing, Verb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.services.campaigns.plan import PlanCounts
    from hilum.settings import Settings
    from hilum.store.campaigns.campaigns import Campaigns

T = TypeVar("T")
Name = Annotated[str, typer.Argument(help="Name of the campaign: small letters, digits, . _ -")]
_NO_STUDY = NoVerb("it shows counts, and no study")
NIGHTS = ("20:00-06:00",)


@campaign_app.command("plan")
@performs(Verb.PLAN_CAMPAIGN)
def plan_campaign(
    name: Name,
    config: Config = None,
    archive: Annotated[
        bool, typer.Option("--archive", help="Studies that the archive holds already.")
    ] = False,
    study_uids: Annotated[
        list[str] | None,
        typer.Option("--study", help="--archive: only this Study Instance UID; repeatable."),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="--archive: studies whose last image came at this time or later."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="--archive: studies whose last image came before.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="--archive: studies that came to this Called AE Title.")
    ] = None,
    calling: Annotated[
        str | None,
        typer.Option("--from", help="--archive: studies that came from this Calling AE Title."),
    ] = None,
) -> None:
    """Make the fixed list of the studies to read. Nothing is fetched.

    Stop it at any moment: the same command goes on with the rest of the plan.
    """
    settings = migrated_settings(config)
    from hilum.services.campaigns.plan import plan  # noqa: PLC0415 - imports the ledger

    source, request = _chosen(
        archive=archive,
        studies=study_uids or [],
        since=since,
        until=until,
        to=to,
        calling=calling,
    )

    def begin(campaigns: Campaigns) -> Campaign:
        return plan(settings, campaigns, name, source, request, _note)

    planned = _do(settings, name, begin)
    print(
        f"planned: {planned.name}. Next: hilum campaign run {planned.name} --release NAME@VERSION"
    )
    for doubt in planned.doubts:
        print(f"hilum: doubt: {doubt.day + ': ' if doubt.day else ''}{doubt.text}", file=sys.stderr)


def _chosen(
    *,
    archive: bool,
    studies: list[str],
    since: datetime | None,
    until: datetime | None,
    to: str | None,
    calling: str | None,
) -> tuple[str, dict[str, Any]]:
    """Return the source, and the parameters of the plan as JSON."""
    if not archive:
        raise ended(2, "give the source of the studies: --archive")
    request = {
        "studies": sorted(set(studies)) or None,
        "since": since and since.astimezone().isoformat(),
        "until": until and until.astimezone().isoformat(),
        "to": to,
        "from": calling,
    }
    return ARCHIVE, {key: value for key, value in request.items() if value is not None}


def _note(counts: PlanCounts) -> None:
    if sys.stderr.isatty():
        print(f"\r{counts.series} series, at {counts.cursor}   ", end="", file=sys.stderr)


@campaign_app.command("run")
@performs(Verb.RUN_CAMPAIGN)
def run_campaign(
    name: Name,
    release: Annotated[str, typer.Option(help="Release that shall read, name@version.")],
    config: Config = None,
    nights: Annotated[
        bool, typer.Option("--nights", help="Fetch from 20:00 to 06:00 only, in the source's zone.")
    ] = False,
    hours: Annotated[
        list[str] | None,
        typer.Option(help="Fetch only then, such as 'mon-fri 20:00-06:00'; repeatable."),
    ] = None,
    deliver: Annotated[
        bool,
        typer.Option("--deliver", help="Send the results to the destinations, too."),
    ] = False,
) -> None:
    """Have the running server fetch and read a planned campaign.

    Results stay in Hilum (REST, pages, export) unless --deliver is given. A release that the
    settings do not name is loaded as long as the campaign runs.
    """
    settings = migrated_settings(config)
    if nights and hours:
        raise ended(2, "--nights and --hours exclude each other")
    chosen = NIGHTS if nights else tuple(hours) if hours else None
    options = CampaignOptions(delivers=deliver, hours=chosen)

    def begin(campaigns: Campaigns) -> Campaign:
        from hilum.services.campaigns.verbs import CampaignVerbs  # noqa: PLC0415 - imports the ledger

        return CampaignVerbs(settings, campaigns).run(name, release, options)

    running = _do(settings, name, begin)
    print(f"{running.name} is {running.state}: the server reads it by {running.release}")


def _change(verb: str) -> Callable[..., None]:
    def change(name: Name, config: Config = None) -> None:
        settings = migrated_settings(config)
        changed = _do(settings, name, lambda campaigns: campaigns.change(name, verb))
        print(f"{changed.name} is {changed.state}")

    return change


@campaign_app.command("pause")
@performs(Verb.CHANGE_CAMPAIGN)
def pause_campaign(name: Name, config: Config = None) -> None:
    """Fetch nothing more for now. Images that were received are read."""
    _change("pause")(name, config)


@campaign_app.command("resume")
@performs(Verb.CHANGE_CAMPAIGN)
def resume_campaign(name: Name, config: Config = None) -> None:
    """Go on with a paused campaign."""
    _change("resume")(name, config)


@campaign_app.command("cancel")
@performs(Verb.CHANGE_CAMPAIGN)
def cancel_campaign(name: Name, config: Config = None) -> None:
    """End a campaign. Images that were received are read, and their results stay."""
    _change("cancel")(name, config)


@campaign_app.command("retry")
@performs(Verb.CHANGE_CAMPAIGN)
def retry_campaign(name: Name, config: Config = None) -> None:
    """Fetch dead series again, also those of a finished campaign."""
    settings = migrated_settings(config)
    count = _do(settings, name, lambda campaigns: campaigns.retry(name))
    print(f"{count} series begin again")


@campaign_app.command("forget")
@performs(Verb.CHANGE_CAMPAIGN)
def forget_campaign(name: Name, config: Config = None) -> None:
    """Delete a plan that never ran, so that its name is free."""
    settings = migrated_settings(config)
    _do(settings, name, lambda campaigns: campaigns.forget(name))
    print(f"{name} is forgotten")


@campaign_app.command("list")
@declare_verb(_NO_STUDY)
def list_campaigns(config: Config = None) -> None:
    """Print every campaign with its state, the newest first."""
    settings = migrated_settings(config)
    with explained(), _campaigns(settings) as campaigns:
        for item in campaigns.all():
            print(f"{item.name:24} {item.state:10} {item.source:12} {item.release or '-'}")


def _do(settings: Settings, name: str, act: Callable[[Campaigns], T]) -> T:
    """Do it as a verb of the audit; exit status 2 with the remedy where it is not possible."""
    from hilum.store.campaigns.rules import CannotRun  # noqa: PLC0415 - imports the ledger

    with (
        explained(),
        acting(settings, None, Thing.CAMPAIGN, name),
        _campaigns(settings) as campaigns,
    ):
        try:
            return act(campaigns)
        except CannotRun as error:
            raise ended(2, f"{error}") from error


@contextlib.contextmanager
def _campaigns(settings: Settings) -> Iterator[Campaigns]:
    from hilum.store.campaigns.campaigns import Campaigns  # noqa: PLC0415 - imports the ledger

    with contextlib.closing(Campaigns(settings.ledger_url)) as campaigns:
        yield campaigns
