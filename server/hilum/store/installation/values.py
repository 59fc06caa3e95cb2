"""Small facts about the whole installation, each a JSON object under its key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from hilum.store.schema.tables import installation


def read(connection: Connection, key: str) -> dict[str, Any] | None:
    """Read a value; None: it was never written."""
    value = connection.execute(
        select(installation.c.value).where(installation.c.key == key)
    ).scalar_one_or_none()
    found: dict[str, Any] | None = None if value is None else json.loads(value)
    return found


def write(connection: Connection, key: str, value: Mapping[str, Any]) -> None:
    """Write a value over the one that is there."""
    text = json.dumps(value)
    if not connection.execute(
        update(installation).where(installation.c.key == key).values(value=text)
    ).rowcount:
        connection.execute(insert(installation).values(key=key, value=text))
