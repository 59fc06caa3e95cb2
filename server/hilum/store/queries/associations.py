"""Rows of associations: written once, or counted up while the same happens again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, update

from hilum.domain import AssociationRecord
from hilum.store.schema.tables import association

_GROWING: Final = ("ended_at", "count", "refused", "own_documents", "advice")

_NEW_VALUES: Final[dict[str, Any]] = {name: bindparam(f"new_{name}") for name in _GROWING}
_GROW = update(association).where(association.c.id == bindparam("row_id")).values(_NEW_VALUES)


def write(
    connection: Connection,
    records: Sequence[AssociationRecord],
    counted: Sequence[tuple[int | None, AssociationRecord]],
) -> list[int]:
    """Insert the records.

    Of `counted`, insert those without an id and update the others; return their ids.
    """
    if records:
        connection.execute(insert(association), [_values(record) for record in records])
    grown = [_growth(row_id, record) for row_id, record in counted if row_id is not None]
    if grown:
        connection.execute(_GROW, grown)
    begun = iter(_begin(connection, [record for row_id, record in counted if row_id is None]))
    return [next(begun) if row_id is None else row_id for row_id, _ in counted]


def _begin(connection: Connection, records: Sequence[AssociationRecord]) -> list[int]:
    if not records:
        return []
    begin = insert(association).returning(association.c.id, sort_by_parameter_order=True)
    return list(connection.execute(begin, [_values(record) for record in records]).scalars())


def _values(record: AssociationRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in AssociationRecord.__slots__}


def _growth(row_id: int, record: AssociationRecord) -> dict[str, Any]:
    return {"row_id": row_id, **{f"new_{name}": getattr(record, name) for name in _GROWING}}
