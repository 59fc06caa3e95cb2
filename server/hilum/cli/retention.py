"""Deletion by age: reasons for its delay, and the confirmation of the date."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated

import typer

from hilum.cli.frame import (
    Config,
    acting,
    ended,
    explained,
    migrated_settings,
    performs,
    retention_app,
)
from hilum.verbs import NoVerb, Verb
from hilum.verbs import performs as declare_verb


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


@retention_app.command("show")
@declare_verb(NoVerb("it shows counts and moments, and no study"))
def show(config: Config = None) -> None:
    """Show the moment of deletion by age, the images deleted in this hour, and commitments.

    Exit status 1: less is deleted than the settings say. The clock is not believed, or the hour's
    share is spent.
    """
    settings = migrated_settings(config)
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    with explained(), closing(LedgerViews(settings.ledger_url)) as views:
        found = views.retention_state()
        promised = views.promised()
    if (believed := found.believed) is not None:
        print(f"known time  {_day(believed.moment)}; the clock said {_day(believed.clock)}")
    limit = found.hour.may_leave or "any number"
    print(f"this hour   {found.hour.images} images have left by age; {limit} may")
    print(f"promised    {promised.images} images, {promised.size_bytes} bytes")
    for reason, is_held in found.held.items():
        if is_held:
            print(f"held by     {reason}")
    raise typer.Exit(1 if any(found.held.values()) else 0)


@retention_app.command("rows")
@declare_verb(NoVerb("it shows counts and moments, and no study"))
def rows(
    months: Annotated[
        float | None,
        typer.Option(help="Count as if retention.row_months were this number.", min=0.1),
    ] = None,
    at_most: Annotated[
        int, typer.Option("--at-most", help="Studies to look at, the oldest first.", min=1)
    ] = 10_000,
    config: Config = None,
) -> None:
    """Show how many studies would leave the ledger, and why others stay. It changes nothing.

    Their rows and documents leave when their last delivery is older than retention.row_months.
    """
    settings = migrated_settings(config)
    from hilum.services.forgotten_studies import preview, rows_before  # noqa: PLC0415 - imports the ledger
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    chosen = settings.retention.row_months if months is None else months
    with explained(), closing(LedgerViews(settings.ledger_url)) as views:
        before = rows_before(chosen, views.retention_state().moment)
        if before is None:
            print("rows        stay (retention.row_months = 0); --months shows what would leave")
            return
        found = preview(settings, before, at_most)
    print(f"rows        leave {chosen:g} months after the last delivery: before {_day(before)}")
    print(f"looked at   {found.looked_at} whose last image is older, {at_most} at most")
    print(f"leave       {found.leaving}, with an export in {settings.row_exports_dir}")
    for reason, count in sorted(found.kept.items()):
        print(f"stay        {count}, {reason}: {reason.words}")


@retention_app.command("confirm-clock")
@performs(Verb.CONFIRM_CLOCK)
def confirm_clock(
    today: Annotated[
        str, typer.Argument(help="The day that it is, as YYYY-MM-DD (UTC), by your own watch.")
    ],
    config: Config = None,
) -> None:
    """Say that the clock is right, after it jumped ahead: deletion by age goes on from it.

    It jumps where the server had no power for long. The clock is the database's on PostgreSQL, else
    this host's. Exit status 1: it shows another day; then nothing was changed.
    """
    settings = migrated_settings(config)
    from hilum.store.installation.known_time import WrongDay, confirm  # noqa: PLC0415 - imports the ledger

    with explained(), acting(settings) as deed:
        deed.detail = today
        try:
            believed = confirm(settings.ledger_url, today)
        except WrongDay as error:
            raise ended(
                1,
                f"the clock says {_day(error.clock)}, not {today}. Set the clock (NTP), then"
                " do it again.",
            ) from error
    print(f"confirmed: it is {_day(believed.moment)}")
