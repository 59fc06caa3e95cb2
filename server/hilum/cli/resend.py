"""Send a report again that a receiver has lost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hilum.cli.frame import Config, acting, app, explained, migrated_settings, performs
from hilum.verbs import Verb


@app.command()
@performs(Verb.RESEND)
def resend(
    uid: Annotated[
        str, typer.Argument(help="Study Instance UID, or SOP Instance UID of one report.")
    ],
    config: Config = None,
    to: Annotated[
        str | None,
        typer.Option(help="Only to this destination; left out: to each that has accepted it."),
    ] = None,
) -> None:
    """Send the delivered reports of a study, or one of them, again.

    The stored bytes, under the same UID.

    For a receiver that has lost them. One that still has them meets the same object, which changes
    nothing there. Exit status 1: nothing was there to be sent; it says why.
    """
    settings = migrated_settings(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - the same

    if to is not None and to not in settings.destinations:
        print(
            f"hilum: no destination {to!r} in the settings; known:"
            f" {', '.join(settings.destinations) or 'none'}",
            file=sys.stderr,
        )
        raise typer.Exit(2)
    with explained(), acting(settings, uid) as deed:
        views = LedgerViews(settings.ledger_url)
        study_uid = uid if views.has_study(uid) else views.study_of(uid)
        deed.study_instance_uid = study_uid or uid
        deed.detail = to and f"to {to}"
        chosen = {"sop_instance_uid": None if study_uid == uid else uid, "destination_name": to}
        done = study_uid and Ledger(settings.ledger_url).resend(
            study_uid, **chosen, among=settings.destinations, deed=deed
        )
        if not done:
            print(
                f"hilum: no study or report {uid} in the ledger; `hilum find` looks for an"
                " Accession Number",
                file=sys.stderr,
            )
            raise typer.Exit(1)
        for item in done.left:
            print(f"hilum: {_document(item)}: {item['why']}", file=sys.stderr)
        if not done.due:
            if not done.left:
                print(
                    f"hilum: nothing of {uid} was delivered{f' to {to}' if to else ''}; `hilum"
                    f" study {uid}` shows it",
                    file=sys.stderr,
                )
            raise typer.Exit(1)
    for item in done.due:
        print(f"{_document(item)}: due again")


def _document(item: Mapping[str, Any]) -> str:
    return (
        f"{item['document']} {item['sop_instance_uid'] or ''}".rstrip()
        + f" to {item['destination']}"
    )
