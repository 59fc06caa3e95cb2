"""The ledger that all hosts share."""

from __future__ import annotations

from typing import Annotated

import typer

from hilum.cli.frame import Config, explained, ledger_app, settings_of, waiting
from hilum.verbs import NoVerb
from hilum.verbs import performs as declare_verb


@ledger_app.command()
@declare_verb(NoVerb("it looks at the revision, and shows no study"))
def wait(
    config: Config = None,
    seconds: Annotated[float, typer.Option(min=0, help="The longest wait; 0: look once.")] = 600.0,
) -> None:
    """Wait until the ledger answers and has the revision of this version.

    Use it before `hilum serve` on a host that does not migrate, such as in an init container. It
    changes nothing. Exit status 2: it was not ready in time, or a newer version has migrated it.
    """
    settings = settings_of(config)
    from hilum.services.upgrade import until_done  # noqa: PLC0415 - imports the ledger
    from hilum.store.migrations.revision import (  # noqa: PLC0415 - the same
        REVISION,
        require_revision,
    )

    with explained():
        until_done(lambda: require_revision(settings.ledger_url), seconds, waiting)
    print(f"ledger at revision {REVISION}")
