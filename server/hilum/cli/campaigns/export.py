"""The numbers of any set of studies as a table."""

from __future__ import annotations

import sys
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hilum.cli.frame import (
    Config,
    acting,
    app,
    ended,
    explained,
    migrated_settings,
    performs,
    seconds_of,
)
from hilum.settings import Settings
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.services.export import ExportCounts, ExportTarget
    from hilum.store.queries.exports import StudySelection

STANDARD_OUTPUT: Final = "-"


@app.command()
@performs(Verb.EXPORT)
def export(
    out: Annotated[
        str, typer.Option(help="File to write, .csv or .parquet; -: CSV on standard output.")
    ],
    config: Config = None,
    studies: Annotated[
        bool, typer.Option("--studies", help="One row a study and finding, not one an image.")
    ] = False,
    release: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this release, name@version; repeatable. Default: all, or that of"
            " the campaign."
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            help="Studies whose last image came at this time of this machine's clock or later."
        ),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Studies whose last image came before this time.")
    ] = None,
    study_dates: Annotated[
        str | None,
        typer.Option(
            metavar="FROM..TO",
            help="Studies with a Study Date (0008,0020) in this range, such as"
            " 2019-01-01..2019-12-31; one end may be left out.",
        ),
    ] = None,
    calling: Annotated[
        list[str] | None,
        typer.Option("--from", help="Studies that came from this Calling AE Title; repeatable."),
    ] = None,
    called: Annotated[
        list[str] | None,
        typer.Option("--to", help="Studies that came to this Called AE Title; repeatable."),
    ] = None,
    campaign: Annotated[
        str | None,
        typer.Option(help="Only studies and images of this campaign, also those that it lacks."),
    ] = None,
    origin: Annotated[
        str, typer.Option(help="Images whose origin in a campaign begins with this text.")
    ] = "",
    study_uids: Annotated[
        list[str] | None,
        typer.Option("--study", help="Only this Study Instance UID; repeatable."),
    ] = None,
    all_revisions: Annotated[
        bool, typer.Option("--all-revisions", help="Also results that a newer one has replaced.")
    ] = False,
    shadows: Annotated[
        bool, typer.Option("--shadows", help="Also results of shadows, which are never reported.")
    ] = False,
    identifiers: Annotated[
        bool,
        typer.Option(
            "--identifiers",
            help="Add Accession Number and Patient ID: the files then name patients.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that are there already.")
    ] = False,
) -> None:
    """Write the numbers of studies into a table, and the images without numbers into a second one.

    The second stands beside the first, as NAME.not_read.csv or NAME.not_read.parquet. No patient is
    named without --identifiers. Columns: docs/archive/export.md.
    """
    first, last = _days(study_dates)
    settings = migrated_settings(config)
    from hilum.services.export import ExportTarget  # noqa: PLC0415 - imports the ledger
    from hilum.store.queries.exports import StudySelection  # noqa: PLC0415 - the same

    selection = StudySelection(
        received_since=seconds_of(since),
        received_until=seconds_of(until),
        study_date_from=first,
        study_date_to=last,
        releases=tuple(dict.fromkeys(release or ())),
        calling_ae_titles=tuple(calling or ()),
        called_ae_titles=tuple(called or ()),
        campaign_id=None if campaign is None else _campaign_id(settings, campaign),
        origin_prefix=origin,
        study_instance_uids=tuple(study_uids or ()),
        has_all_revisions=all_revisions,
        has_shadows=shadows,
    )
    target = ExportTarget(
        None if out == STANDARD_OUTPUT else Path(out),
        by_study=studies,
        has_identifiers=identifiers,
        replaces=force,
    )
    write_export(settings, selection, target, campaign)


def write_export(
    settings: Settings,
    selection: StudySelection,
    target: ExportTarget,
    campaign: str | None = None,
) -> None:
    """Export as a verb of the audit, and print the counts. `campaign`: its name for the audit."""
    from hilum.services.export import (  # noqa: PLC0415 - imports the ledger
        ExportCounts,
        check_target,
    )
    from hilum.services.export import export as export_tables  # noqa: PLC0415 - the same

    counts = ExportCounts()
    thing = None if campaign is None else Thing.CAMPAIGN
    with explained():
        check_target(target)
    if target.has_identifiers:
        print(
            "hilum: the table names patients: keep it where patient data may be kept",
            file=sys.stderr,
        )
    with explained(), acting(settings, None, thing, campaign) as deed:
        deed.detail = "with identifiers" if target.has_identifiers else None
        try:
            export_tables(settings, selection, target, counts)
        finally:
            deed.count = counts.studies
    _say(counts, target)


def _say(counts: ExportCounts, target: ExportTarget) -> None:
    from hilum.services.export_tables.files import not_read_path  # noqa: PLC0415 - the same

    studies = "1 study" if counts.studies == 1 else f"{counts.studies} studies"
    said = f"{_rows(counts.rows)} of {studies}"
    if target.path is None:
        print(
            f"hilum: {said}; {_rows(counts.not_read)} of images that were not read are left out:"
            " give --out a file for them",
            file=sys.stderr,
        )
        return
    print(f"{target.path}: {said}")
    print(f"{not_read_path(target.path)}: {_rows(counts.not_read)} of images that were not read")


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _days(said: str | None) -> tuple[date | None, date | None]:
    """Return both ends of a range of days; exit status 2 for another text."""
    if said is None:
        return None, None
    first, dots, last = said.partition("..")
    try:
        days = [date.fromisoformat(each) if each else None for each in (first, last)]
    except ValueError:
        days = []
    if not dots or not any(days):
        raise ended(2, f"--study-dates {said!r} is no range of days; say 2019-01-01..2019-12-31")
    return days[0], days[1]


def _campaign_id(settings: Settings, name: str) -> int:
    """Return the row id of a campaign; exit status 2 where there is none of this name."""
    from hilum.store.campaigns.campaigns import Campaigns  # noqa: PLC0415 - imports the ledger

    with explained(), closing(Campaigns(settings.ledger_url)) as campaigns:
        found = campaigns.find(name)
    if found is None:
        raise ended(2, f"there is no campaign {name!r}: `hilum campaign list` shows all")
    return found.id
