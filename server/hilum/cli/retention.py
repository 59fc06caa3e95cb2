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
