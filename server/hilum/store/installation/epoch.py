"""The epoch of a ledger, which keeps the UIDs of documents apart from those before a restore.

A restored ledger makes reports again that its former self has sent meanwhile, with other bytes. In
an epoch of its own it mints other SOP Instance UIDs for them. An epoch is drawn where the ledger
has none, as `hilum backup` leaves its copy. It is also drawn where the epoch is of another place:
another file (SQLite), other tables, another timeline or cluster (PostgreSQL).
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, delete, insert, select, text, update
from sqlalchemy.engine import make_url

from hilum.domain import ResultState, mint_uid
from hilum.store.schema import changes
from hilum.store.schema.tables import document, installation, result

KEY: Final = "epoch"
_TABLE: Final = text(
    "SELECT oid || '.' || CAST(CAST('installation' AS regclass) AS oid) FROM pg_database WHERE"
    " datname = current_database()"
)
_LOCK: Final = text("LOCK TABLE installation IN SHARE ROW EXCLUSIVE MODE")


def begin(connection: Connection, url: str) -> str:
    """Return the epoch, drawn now where the ledger has none of this place.

    In a transaction that may write. Idempotent.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)  # another process may draw one; SQLite has one writer at a time
    place = _place(connection, url)
    if (known := _of_place(connection, place)) is not None:
        return known
    drawn = uuid.uuid4().hex
    connection.execute(delete(installation).where(installation.c.key == KEY))
    connection.execute(insert(installation).values(key=KEY, value=f"{drawn} {place}"))
    _mint_again(connection, drawn)
    return drawn


def current(connection: Connection, url: str) -> str | None:
    """Return the epoch; None: one is to be drawn. Takes no lock."""
    return _of_place(connection, _place(connection, url))


def _of_place(connection: Connection, place: str) -> str | None:
    value = connection.execute(
        select(installation.c.value).where(installation.c.key == KEY)
    ).scalar_one_or_none()
    drawn, _, at = (value or "").partition(" ")
    return drawn if drawn and at == place else None


def _place(connection: Connection, url: str) -> str:
    """The identity of the ledger's place. A copy of the ledger has another one."""
    if connection.dialect.name == "postgresql":
        return f"{changes.identity(connection)} {connection.execute(_TABLE).scalar_one()}"
    return str(Path(make_url(url).database or "").stat().st_ino)


def _mint_again(connection: Connection, epoch: str) -> None:
    """Change the UIDs of results without documents.

    The ledger's former self may have made and sent those. Their leases end, so that no worker
    stores a document under a former UID.
    """
    has_document = select(document.c.id).where(document.c.result_id == result.c.id).exists()
    is_open = result.c.state.in_((ResultState.DUE, ResultState.LEASED))
    for row in connection.execute(
        select(result.c.id, result.c.identifiers).where(is_open, ~has_document)
    ).all():
        minted = {kind: _again(kind, uid, epoch) for kind, uid in row.identifiers.items()}
        values = {
            "identifiers": minted,
            "state": ResultState.DUE,
            "lease_token": None,
            "leased_until": None,
        }
        connection.execute(update(result).where(result.c.id == row.id).values(values))


def _again(kind: str, uid: str, epoch: str) -> str:
    """Mint a UID again. Revisions share their series, also across epochs."""
    return uid if kind.endswith("_series") else mint_uid(uuid.UUID(epoch), uid)
