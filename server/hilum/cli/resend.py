"""Send a report again that a receiver has lost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hilum.cli.frame import (
    Config,
    acting,
    app,
    ended,
    explained,
    migrated_settings,
    performs,
    require_destination,
)
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

    if to is not None:
        require_destination(settings, to)
    views = LedgerViews(settings.ledger_url)
    with explained(), acting(settings, uid) as deed:
        study_uid = uid if views.has_study(uid) else views.study_of(uid)
        deed.study_instance_uid = study_uid or uid
        deed.detail = to and f"to {to}"
        chosen = {"sop_instance_uid": None if study_uid == uid else uid, "destination_name": to}
        done = study_uid and Ledger(settings.ledger_url).resend(
            study_uid, **chosen, among=settings.destinations, deed=deed
        )
        if not done:
            raise ended(
                1,
                f"no study or report {uid} in the ledger; `hilum find` looks for an"
                " Accession Number",
            )
        left = [f"{_document(item)}: {item['why']}" for item in done.left]
        if not done.due:
            raise ended(1, *left or [_never_delivered(uid, to)])
    for line in left:
        print(f"hilum: {line}", file=sys.stderr)
    for item in done.due:
        print(f"{_document(item)}: due again")


def _never_delivered(uid: str, to: str | None) -> str:
    where = f" to {to}" if to else ""
    return f"nothing of {uid} was delivered{where}; `hilum study {uid}` shows it"


def _document(item: Mapping[str, Any]) -> str:
    return (
        f"{item['document']} {item['sop_instance_uid'] or ''}".rstrip()
        + f" to {item['destination']}"
    )
