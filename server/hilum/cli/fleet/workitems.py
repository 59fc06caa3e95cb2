"""Work items of worklist managers."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import Config, explained, migrated_settings, workitems_app
from hilum.domain import WORKITEM_REASONS, Workitem, WorkitemState
from hilum.timestamps import iso
from hilum.verbs import NoVerb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from collections.abc import Sequence


@workitems_app.command("list")
@declare_verb(NoVerb("it shows work items, and changes none"))
def list_workitems(
    state: Annotated[
        list[WorkitemState] | None, typer.Option(help="Of this state alone; may be repeated.")
    ] = None,
    manager: Annotated[str, typer.Option(help="As in the settings, workitems.<name>.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="So many at most.")] = 50,
    config: Config = None,
) -> None:
    """List work items, the newest first: their state, and the reason where they were not completed.

    Above them stand the worklist managers that cannot be asked now.
    """
    settings = migrated_settings(config)
    from hilum.store.queue.workitems import Workitems  # noqa: PLC0415 - imports the ledger

    with explained(), closing(Workitems(settings.ledger_url)) as items:
        problems = items.problems()
        found = items.latest(limit, state or (), manager)
    for name, problem in problems.items():
        if name in settings.workitems and manager in {"", name}:
            print(f"AWAY: {problem}")
    _print_items(found)


def _print_items(found: Sequence[Workitem]) -> None:
    for item in found:
        print(
            f"{iso(item.found_at, 'seconds')}  {item.manager:12} {item.state.value:10}"
            f" {item.workitem_uid}  study {item.study_instance_uid or '-'}{_why(item)}"
        )


def _why(item: Workitem) -> str:
    """Return why an item was not completed, in words; empty: it was, or it is open."""
    if item.reason is None:
        return ""
    detail = f" ({item.detail})" if item.detail else ""
    return f"  {item.reason.value}: {WORKITEM_REASONS[item.reason]}{detail}"
