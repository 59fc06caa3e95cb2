"""Objects that the ledger does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import Config, acting, app, explained, migrated_settings, performs
from hilum.verbs import Verb

if TYPE_CHECKING:
    from hilum.store.intake.record import RecordOutcome


@app.command()
@performs(Verb.RECOVER)
def recover(
    config: Config = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this they are only counted.")
    ] = False,
) -> None:
    """Take objects of the archive that no row names.

    They came after the backup whose ledger was restored (docs/operate/operations.md). They are read
    and reported like new objects, also while the server runs. Safe to repeat.

    Exit status 1: there are some, and they were only counted; or the ledger refuses some, which go
    to quarantine.
    """
    settings = migrated_settings(config)
    from hilum.observability import telemetry  # noqa: PLC0415 - not needed by other commands
    from hilum.services.recover import orphans_of, recover_orphans  # noqa: PLC0415 - the same
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - the same
    from hilum.store.intake.record import RecordOutcome  # noqa: PLC0415 - the same

    telemetry.configure_logging("error", settings.log.format, "recover")
    with explained(), acting(settings) as deed:
        files = orphans_of(settings)
        outcomes = Counter[RecordOutcome]()
        deed.count = len(files)
        deed.detail = None if yes else "only counted"
        if yes:
            require_same_user(settings)  # it moves files, and may be stopped on the way
            outcomes = recover_orphans(settings, files)
    print(_said(len(files), outcomes) if yes else _counted(len(files)))
    raise typer.Exit(1 if outcomes.total() < len(files) else 0)


def _counted(count: int) -> str:
    return f"{count} objects have no row{': give --yes to take them' if count else ''}"


def _said(count: int, outcomes: Mapping[RecordOutcome, int]) -> str:
    each = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    return f"{count} objects had no row{f': {each}' if each else ''}"
