"""Campaigns: a release reads a fixed set of old studies."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hilum.cli.campaigns.export import STANDARD_OUTPUT, write_export
from hilum.cli.campaigns.requests import of_archive, of_pacs, of_pictures
from hilum.cli.frame import (
    Config,
    acting,
    campaign_app,
    ended,
    explained,
    migrated_settings,
    performs,
)
from hilum.domain import FILES, Campaign, CampaignOptions
from hilum.settings.hours import weekly_window
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
    source: Annotated[
        str | None,
        typer.Option(help="A source of the settings; with --dates or --list."),
    ] = None,
    dates: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO", help="Study Dates of the PACS, as 2019-01-01..2019-12-31."
        ),
    ] = None,
    listed: Annotated[
        Path | None,
        typer.Option("--list", help="CSV or Parquet of accession numbers or Study Instance UIDs."),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Header of the list's column, if there are several.")
    ] = None,
    modality: Annotated[
        str, typer.Option(help="Modalities of the series to read, with commas between.")
    ] = "CR,DX",
    folder: Annotated[
        str | None, typer.Option(help="A folder of DICOM files, or a URL such as s3://bucket/path.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="CSV of PNG or JPEG files (docs/archive/files.md).")
    ] = None,
    path_column: Annotated[
        str | None, typer.Option(help="--pictures: header of the column of paths.")
    ] = None,
    study_column: Annotated[
        str | None, typer.Option(help="--pictures: header of the column of studies.")
    ] = None,
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

    Give one of --source, --folder, --pictures and --archive. Stop it at any moment: the same
    command goes on with the rest of the plan.
    """
    settings = migrated_settings(config)
    given = {
        "source": source,
        "folder": folder,
        "pictures": pictures,
        "archive": archive or None,
    }
    named = [word for word, value in given.items() if value is not None]
    if len(named) != 1:
        raise ended(2, "give one of --source, --folder, --pictures and --archive")
    if source is not None:
        chosen = of_pacs(settings, source, dates, listed, column, modality)
    elif folder is not None:
        chosen = FILES, {"folder": folder}
    elif pictures is not None:
        chosen = of_pictures(pictures, path_column, study_column)
    else:
        chosen = of_archive(study_uids or [], since, until, to, calling)
    _plan(settings, name, *chosen)


def _plan(settings: Settings, name: str, source: str, request: dict[str, Any]) -> None:
    from hilum.retrieve.lists.table import ListError  # noqa: PLC0415 - imports the reader
    from hilum.retrieve.source import SourceError  # noqa: PLC0415 - the same
    from hilum.services.campaigns.plan import plan  # noqa: PLC0415 - imports the ledger

    def begin(campaigns: Campaigns) -> Campaign:
        try:
            return plan(settings, campaigns, name, source, request, _note)
        except (SourceError, ListError) as error:
            is_final = isinstance(error, ListError) or error.is_final
            again = "" if is_final else ". The same command goes on."
            raise ended(1, f"{error.detail}{again}") from error
        except ValueError as error:
            raise ended(2, f"{error}") from error

    planned = _do(settings, name, begin)
    # Imported here, so that the help lists `status` behind `plan` and `run`.
    from hilum.cli.campaigns.status import print_plan  # noqa: PLC0415

    print_plan(settings, planned)


def _note(counts: PlanCounts) -> None:
    if sys.stderr.isatty():
        print(f"\r{counts.series} series, at {counts.cursor[-40:]}   ", end="", file=sys.stderr)


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
    for entry in hours or ():
        try:
            weekly_window(entry)
        except ValueError as error:
            raise ended(2, f"--hours: {error}") from error
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


@campaign_app.command("export")
@performs(Verb.EXPORT)
def export_campaign(
    name: Name,
    out: Annotated[
        str, typer.Option(help="Table to write: .csv or .parquet; -: standard output, as CSV.")
    ],
    config: Config = None,
    studies: Annotated[
        bool, typer.Option("--studies", help="A row for each study instead of each image.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the results of a campaign, and beside them the images that were not read and why.

    Columns: docs/archive/export.md. `hilum export` has more filters.
    """
    settings = migrated_settings(config)
    from hilum.services.export import ExportTarget  # noqa: PLC0415 - imports the ledger
    from hilum.store.queries.exports import StudySelection  # noqa: PLC0415 - the same

    with explained(), _campaigns(settings) as campaigns:
        found = campaigns.find(name)
    if found is None:
        raise ended(2, f"there is no campaign {name}: `hilum campaign list` shows all")
    path = None if out == STANDARD_OUTPUT else Path(out)
    target = ExportTarget(path, by_study=studies, replaces=force)
    write_export(settings, StudySelection(campaign_id=found.id), target, name)


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
