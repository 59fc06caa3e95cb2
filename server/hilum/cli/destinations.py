"""Receivers of reports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hilum.cli.frame import (
    Config,
    destinations_app,
    explained,
    migrated_settings,
    settings_of,
)


@destinations_app.command("probe")
def probe_destination(name: Annotated[str, typer.Argument(help="As in [destinations.<name>].")], config: Config = None) -> None:
    """Ask a destination what it would accept, before the first study: C-ECHO, SR classes, Transfer Syntaxes. Sends no object."""
    settings = settings_of(config)
    from hilum.deliver.probe import probe  # noqa: PLC0415 - pynetdicom is not needed elsewhere

    if name not in settings.destinations:
        print(f"hilum: no destination {name!r} in the settings; known: {', '.join(settings.destinations) or 'none'}", file=sys.stderr)
        raise typer.Exit(2)
    found = probe(name, settings.destinations[name])
    print(f"{found.destination}: {found.address}{f', C-ECHO: {found.echo}' if found.echo else ''}")
    for item in found.contexts:
        print(f"  {'yes' if item.is_accepted else 'no ':3} {item.sop_class}, {item.transfer_syntax}")
    print(f"{'ok' if found.is_ok else 'PROBLEM'}: {found.detail}")
    raise typer.Exit(0 if found.is_ok else 1)


@destinations_app.command("list")
def list_destinations(config: Config = None) -> None:
    """List the destinations: paused or not, and how many deliveries wait, are in work, or need a person."""
    settings = migrated_settings(config)
    from hilum.store.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    with explained():
        found = LedgerViews(settings.ledger_url).destination_states(settings.destinations)
    for item in found:
        words = ["PAUSED" if item["is_paused"] else "in use" if item["is_configured"] else "not in the settings"]
        words += [f"{item[name]} {name}" for name in ("due", "waiting", "leased") if item[name]]
        words += [f"{count} dead: {reason}" for reason, count in item["dead"].items()]
        print(f"{item['name']:24} {', '.join(words)}{': ' + item['detail'] if item['detail'] else ''}")


@destinations_app.command("pause")
def pause_destination(name: Annotated[str, typer.Argument(help="As in [destinations.<name>].")], config: Config = None) -> None:
    """Send nothing more to a destination until it is resumed. What is on the wire is finished; documents wait."""
    _pause(config, name, is_paused=True)


@destinations_app.command("resume")
def resume_destination(name: Annotated[str, typer.Argument(help="As in [destinations.<name>].")], config: Config = None) -> None:
    """Send again, beginning with what waited."""
    _pause(config, name, is_paused=False)


def _pause(config: Path | None, name: str, *, is_paused: bool) -> None:
    settings = migrated_settings(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger

    if name not in settings.destinations:
        print(f"hilum: no destination {name!r} in the settings; known: {', '.join(settings.destinations) or 'none'}", file=sys.stderr)
        raise typer.Exit(2)
    with explained():
        Ledger(settings.ledger_url).pause(name, is_paused=is_paused)
    print(f"{name}: {'paused' if is_paused else 'in use'}")
