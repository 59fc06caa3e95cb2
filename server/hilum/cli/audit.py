"""The audit: the actions of each actor."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Annotated

import typer

from hilum.cli.frame import (
    Config,
    acting,
    app,
    ended,
    explained,
    migrated_settings,
    performs,
    require_known,
    seconds_of,
)
from hilum.verbs import Verb

_SHOWN = 100


@app.command()
@performs(Verb.READ_AUDIT)
def audit(
    config: Config = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="At this time of this machine's clock or later, such as 2026-11-20."),
    ] = None,
    until: Annotated[datetime | None, typer.Option(help="Before this time.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only this name.")] = None,
    verb: Annotated[
        str | None, typer.Option(help="Only this verb, as docs/operate/audit.md lists them.")
    ] = None,
    study_uid: Annotated[
        str | None,
        typer.Option("--study", help="Only of this Study Instance UID, also where it was erased."),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="text; json, one object a line; csv; dicom, one message of PS3.15 A.5 a line.",
        ),
    ] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Rows at most. Default: 100 as text, else all.")
    ] = None,
) -> None:
    """Show the actions of each actor by command line, REST and page, newest first.

    Reading it is a row itself. Exit status 1: there is no such row.
    """
    settings = migrated_settings(config)
    from hilum.audit.export import FORMATS  # noqa: PLC0415 - imports the ledger
    from hilum.audit.message import AuditSource  # noqa: PLC0415 - the same
    from hilum.store.audit.log import AuditFilter, AuditLog  # noqa: PLC0415 - the same

    form = "json" if as_json else form
    require_known("format", form, FORMATS)
    if verb is not None:
        require_known("verb", verb, Verb)
    chosen = AuditFilter(
        seconds_of(since), seconds_of(until), actor, Verb(verb) if verb else None, study_uid
    )
    at_most = limit if limit or form != "text" else _SHOWN
    with explained(), acting(settings, study_uid) as deed:
        deed.count = 0
        deed.detail = form
        rows = itertools.islice(AuditLog(settings.ledger_url).all(chosen), at_most)
        for line in FORMATS[form](map(deed.counting, rows), AuditSource(settings.site.name)):
            print(line)
    if not deed.count:
        raise ended(1, "no such row; the audit begins with the version that first kept it")
