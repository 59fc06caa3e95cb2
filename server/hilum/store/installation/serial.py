"""The number that tells one installation from others of the same make."""

from __future__ import annotations

import uuid
from typing import Final

from sqlalchemy import Connection, select

from hilum.store.schema.tables import installation

_NAMESPACE: Final = "namespace"


def namespace(connection: Connection) -> uuid.UUID:
    """The UID namespace, minted once at the first migration. Raises NoResultFound."""
    return uuid.UUID(
        connection.execute(
            select(installation.c.value).where(installation.c.key == _NAMESPACE)
        ).scalar_one()
    )


def serial_of(known: uuid.UUID) -> str:
    """The number: 16 hexadecimal digits."""
    return known.hex[:16]
