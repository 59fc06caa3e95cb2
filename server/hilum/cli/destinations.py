"""Receivers of reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hilum.cli.frame import (
    Config,
    acting,
    commitments_app,
    destinations_app,
    ended,
    explained,
    migrated_settings,
    performs,
    require_destination,
    settings_of,
)
from hilum.verbs import NoVerb, Thing, Verb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.store.admin.operator import Forgotten


@destinations_app.command("probe")
@performs(Verb.PROBE)
def probe_destination(
    name: Annotated[str, typer.Argument(help="As in the settings, destinations.<name>.")],
    config: Config = None,
) -> None:
    """Ask a destination for its terms, before the first study.

    C-ECHO, SR classes, Transfer Syntaxes. Sends no object.
    """
    settings = settings_of(config)
    from hilum import deliver  # noqa: PLC0415 - pynetdicom is not needed elsewhere

    require_destination(settings, name)
    with explained(), acting(settings, None, Thing.DESTINATION, name):
        found = deliver.probe_destination(name, settings.destinations[name])
    print(f"{found.destination}: {found.address}{f', C-ECHO: {found.echo}' if found.echo else ''}")
    for item in found.contexts:
        answer = "yes" if item.is_accepted else "no "
        print(f"  {answer} {item.sop_class}, {item.transfer_syntax}")
    print(f"{'ok' if found.is_ok else 'PROBLEM'}: {found.detail}")
    raise typer.Exit(0 if found.is_ok else 1)


@destinations_app.command("list")
@declare_verb(NoVerb("it shows queues, and no study"))
def list_destinations(config: Config = None) -> None:
    """List the destinations: paused or not, and the deliveries of each.

    Counts of deliveries that wait, are in work, or need a person.
    """
    settings = migrated_settings(config)
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    with explained():
        found = LedgerViews(settings.ledger_url).destination_states(settings.destinations)
    for item in found:
        problem = f": {item['detail']}" if item["detail"] else ""
        print(f"{item['name']:24} {', '.join(_state_of(item))}{problem}")


def _state_of(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield whether the destination is in use, and its deliveries by state."""
    is_used = "in use" if item["is_configured"] else "not in the settings"
    yield "PAUSED" if item["is_paused"] else is_used
    yield from (f"{item[name]} {name}" for name in ("due", "waiting", "leased") if item[name])
    if item["uncommitted"]:
        yield f"{item['uncommitted']} not committed yet"
    yield from (f"{count} dead: {reason}" for reason, count in item["dead"].items())
    yield from (f"{count} withheld: {reason}" for reason, count in item["withheld"].items())
    if item["releasable"]:
        command = f"hilum requeue deliver --destination {item['name']}"
        yield f"{item['releasable']} of them can be released: {command}"


@destinations_app.command("pause")
@performs(Verb.PAUSE)
def pause_destination(
    name: Annotated[str, typer.Argument(help="As in the settings, destinations.<name>.")],
    config: Config = None,
) -> None:
    """Send nothing more to a destination until it is resumed.

    An object in transfer is finished; documents wait.
    """
    _pause(config, name, is_paused=True)


@destinations_app.command("resume")
@performs(Verb.RESUME)
def resume_destination(
    name: Annotated[str, typer.Argument(help="As in the settings, destinations.<name>.")],
    config: Config = None,
) -> None:
    """Resume a destination, beginning with the waiting documents."""
    _pause(config, name, is_paused=False)


@destinations_app.command("forget")
@performs(Verb.FORGET_DESTINATION)
def forget_destination(
    name: Annotated[str, typer.Argument(help="As its section of the settings was called.")],
    config: Config = None,
) -> None:
    """Discard the queue of a destination that is no longer in the settings.

    It cannot be undone; deliveries in work are left.
    """
    settings = migrated_settings(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - the same

    if name in settings.destinations:
        raise ended(
            2,
            f"{name} is in the settings; take [destinations.{name}] out and restart, then"
            " forget it",
        )
    with explained(), acting(settings, None, Thing.DESTINATION, name) as deed:
        found = LedgerViews(settings.ledger_url).destination_states(settings.destinations)
        if name not in (others := [item["name"] for item in found if not item["is_configured"]]):
            raise ended(
                2,
                f"nothing waits for a destination {name!r}; not in the settings:"
                f" {', '.join(others) or 'none'}",
            )
        done = Ledger(settings.ledger_url).forget_destination(name, deed)
    print(f"{name}: {_cancelled(done)}")


def _cancelled(done: Forgotten) -> str:
    said = f"{done.cancelled} deliver{'y' if done.cancelled == 1 else 'ies'} cancelled"
    if not done.in_work:
        return said
    advice = "a dispatcher has earlier settings, restart it and repeat this"
    return f"{said}; {done.in_work} in work: {advice}"


def _pause(config: Path | None, name: str, *, is_paused: bool) -> None:
    settings = migrated_settings(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger

    require_destination(settings, name)
    with explained(), acting(settings, None, Thing.DESTINATION, name) as deed:
        Ledger(settings.ledger_url).pause(name, is_paused=is_paused, deed=deed)
    print(f"{name}: {'paused' if is_paused else 'in use'}")


@commitments_app.command("forget")
@performs(Verb.FORGET_COMMITMENTS)
def forget_commitments(
    requester: Annotated[str, typer.Argument(help="AE Title of the requester.")],
    config: Config = None,
) -> None:
    """Discard the failed reports to a requester that is gone or cannot be reached.

    It cannot be undone. Reports that are due are still tried.
    """
    settings = migrated_settings(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger

    with explained(), acting(settings, None, Thing.SENDER, requester) as deed:
        count = Ledger(settings.ledger_url).forget_commitments(requester, deed)
    print(f"{requester}: {count} dead report{'' if count == 1 else 's'} given up")
