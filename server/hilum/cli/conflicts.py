"""Decide on conflicting bytes and on single images."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hilum.cli.frame import (
    Config,
    acting,
    conflicts_app,
    ended,
    explained,
    images_app,
    migrated_settings,
    performs,
)
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.store.admin.decisions import Decisions
    from hilum.store.audit.log import Deed


_LISTED = (
    "id",
    "state",
    "kind",
    "sop_instance_uid",
    "calling_ae_title",
    "size_bytes",
    "path",
    "study_instance_uid",
)


_NOTE = ("sop_instance_uid", "study_instance_uid", "reason", "calling_ae_title")


def _row_id(value: int) -> int:
    from hilum.store.schema.tables import MAXIMUM_ROW_ID  # noqa: PLC0415 - imports SQLAlchemy

    if not 0 < value <= MAXIMUM_ROW_ID:
        raise typer.BadParameter(f"{value} is not in the range 1 to {MAXIMUM_ROW_ID}.")
    return value


ConflictId = Annotated[
    int,
    typer.Argument(
        callback=_row_id, help="Number of the conflict, as `hilum conflicts list` shows it."
    ),
]


@conflicts_app.command("list")
@performs(Verb.LIST_CONFLICTS)
def list_conflicts(
    config: Config = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also those that a person has decided.")
    ] = False,
) -> None:
    """List the conflicts that are not decided yet, newest first, one a line.

    Number, state, kind (pixels, header), SOP Instance UID, sender, size, file, and the Study
    Instance UID of the image in use (-: no image is in use any more).
    """
    settings = migrated_settings(config)
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    views = LedgerViews(settings.ledger_url)
    cursor = None
    with explained(), acting(settings):
        while True:
            found, cursor = views.conflicts(limit=500, cursor=cursor)
            for item in found:
                if every or item["state"] == "held":
                    print(*(item[name] or "-" for name in _LISTED), sep="  ")
            if cursor is None:
                return


@conflicts_app.command("keep")
@performs(Verb.KEEP_CONFLICT)
def keep_conflict(conflict: ConflictId, config: Config = None) -> None:
    """Leave the first bytes in use; the file stays in quarantine, kept out of everything."""
    _decide(
        config, Thing.CONFLICT, conflict, lambda decisions, deed: decisions.keep(conflict, deed)
    )


@conflicts_app.command("replace")
@performs(Verb.REPLACE_CONFLICT)
def replace_conflict(conflict: ConflictId, config: Config = None) -> None:
    """Take the quarantined bytes as the image: it is read and reported again.

    The former bytes go to quarantine.
    """
    _decide(
        config, Thing.CONFLICT, conflict, lambda decisions, deed: decisions.replace(conflict, deed)
    )


@conflicts_app.command("discard")
@performs(Verb.DISCARD_CONFLICT)
def discard_conflict(conflict: ConflictId, config: Config = None) -> None:
    """Delete the quarantined file."""
    _decide(
        config, Thing.CONFLICT, conflict, lambda decisions, deed: decisions.discard(conflict, deed)
    )


@images_app.command("notes")
@performs(Verb.LIST_NOTES)
def list_notes(config: Config = None) -> None:
    """List rejection notes without effect, one image a line.

    They came from senders that may not reject it (senders.<T>.may_reject).

    SOP Instance UID, Study Instance UID, reason, and the sender of the note. `hilum images reject`
    takes an image out all the same.
    """
    settings = migrated_settings(config)
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    with explained(), acting(settings), closing(LedgerViews(settings.ledger_url)) as views:
        for item in views.rejections_without_effect():
            print(*(item[name] for name in _NOTE), sep="  ")


@images_app.command("reject")
@performs(Verb.REJECT_IMAGE)
def reject_image(
    uid: Annotated[str, typer.Argument(help="SOP Instance UID.")], config: Config = None
) -> None:
    """Take an image out of results, as a rejection note would.

    Its study gets a new result and report without it.
    """
    _decide(config, Thing.IMAGE, uid, lambda decisions, deed: decisions.reject(uid, deed))


def _decide(
    config: Path | None,
    thing: Thing,
    name: object,
    decide: Callable[[Decisions, Deed], dict[str, Any] | None],
) -> None:
    """Print the outcome as JSON.

    Exit status 1 if it is not there or not open for this decision.
    """
    settings = migrated_settings(config)
    from hilum.api.answers.operations import ConflictAnswer, RejectedAnswer  # noqa: PLC0415 - the same answers as REST gives
    from hilum.services.image_decisions import open_decisions  # noqa: PLC0415 - the same
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - the same
    from hilum.store.admin.decisions import CannotResolve  # noqa: PLC0415 - imports the ledger

    with explained():
        require_same_user(settings)  # it may move files
    with (
        explained(),
        closing(open_decisions(settings)) as decisions,
        acting(settings, None, thing, name) as deed,
    ):
        try:
            found = decide(decisions, deed)
        except CannotResolve as error:
            raise ended(1, f"{error}") from error
        if found is None:
            raise ended(1, f"no {thing} {name} in the ledger")
    answer = RejectedAnswer if "removal_reason" in found else ConflictAnswer
    print(answer.model_validate(found).model_dump_json(indent=2))
