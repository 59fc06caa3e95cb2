"""The hosts of the installation, and the faults among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any, Final

import typer

from hilum.cli.frame import Config, app, explained, migrated_settings
from hilum.verbs import NoVerb
from hilum.verbs import performs as declare_verb

_HEADINGS: Final = ("HOST", "ROLES", "VERSION", "LEDGER", "CLOCK", "SETTINGS", "SEEN")
_LONGEST: Final = (22, 14, 8, 6, 8, 8, 7)


@app.command()
@declare_verb(NoVerb("it shows servers, and no study"))
def hosts(
    config: Config = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON, as `hosts` in GET /api/v1/queues.")
    ] = False,
) -> None:
    """Show the servers of this installation: roles, version, clock, settings, last heartbeat.

    Faults follow, with remedies: clocks, names, versions, settings, archives. Exit status 1: there
    is one.
    """
    settings = migrated_settings(config)
    from hilum.domain import host_items  # noqa: PLC0415 - beside the ledger
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    with explained(), closing(LedgerViews(settings.ledger_url)) as views:
        found = host_items(views.hosts(), settings.ledger.clock_tolerance_seconds)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    raise typer.Exit(1 if any(item["problems"] for item in found) else 0)


def show(found: list[dict[str, Any]]) -> None:
    """Print a table of 80 columns, and the problems below it."""
    if not found:
        print("no server runs, or has run in the last day")
        return
    print(_line(_HEADINGS))
    for item in found:
        print(_line(_cells(item)))
    for item in found:
        for problem in item["problems"]:
            print(f"\n{item['host']}: {problem['detail']}\n        -> {problem['advice']}")


def _cells(item: Mapping[str, Any]) -> tuple[str, ...]:
    offset = item["clock_offset_seconds"]
    return (
        _both_ends(item["host"]),
        item["roles"],
        item["version"],
        item["revision"],
        "-" if offset is None else f"{offset:+.2f} s",
        item["settings_digest"],
        _age(item["age_seconds"]),
    )


def _line(cells: tuple[str, ...]) -> str:
    return " ".join(
        _short(cell, width).ljust(width) for cell, width in zip(cells, _LONGEST, strict=True)
    ).rstrip()


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}~"


def _both_ends(name: str) -> str:
    """Return a host name without its middle: names of pods differ at their ends."""
    width = _LONGEST[0]
    kept = (width - 1) // 2
    return name if len(name) <= width else f"{name[: width - 1 - kept]}~{name[-kept:]}"


def _age(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"
