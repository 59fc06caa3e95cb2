"""Studies in the order of their last change, for followers of the list.

A change is of a study, of its results, or of their deliveries. Every row of the three tables stands
in this order once, at the place of its last change. A study with several rows on a page is on it
once. A client that keeps the cursor of the last page and asks again gets every study that has
changed since. docs/decisions/changes-by-transaction.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Integer,
    Label,
    Row,
    Select,
    bindparam,
    literal_column,
    select,
    union_all,
)

from hilum.store.queries.studies import Item, items_of
from hilum.store.schema import cursor as cursors
from hilum.store.schema.changes import EndOfChanges
from hilum.store.schema.tables import delivery, document, result, study

# A study, its result, and deliveries to two destinations: a page of studies is looked for among so
# many rows.
_ROWS_OF_A_STUDY = 4
_CHANGE: Final[BindParameter[int]] = bindparam("change", type_=BigInteger)
_LIMIT: Final[BindParameter[int]] = bindparam("limit", type_=Integer)
_TABLES: Final = (study, result, delivery)  # in the order in which rows of one number stand


def page(connection: Connection, limit: int, cursor: str | None) -> tuple[list[Item], str]:
    """Up to `limit` studies changed after the cursor, as they are now, and the next cursor.

    No studies: there is no news. Without a cursor it begins with the first of all studies. Raises
    BadCursor.
    """
    after = (0, 0, 0) if cursor is None else cursors.decode_place(cursor)
    change, rank, row_id = after
    rows = connection.execute(
        page_query(rank), {"change": change, "row": row_id, "limit": _ROWS_OF_A_STUDY * limit}
    ).all()
    chosen, last = _first_studies(rows, _studies_of(connection, rows), limit)
    return _items(connection, chosen), cursors.encode_place(last or after)


def _first_studies(
    rows: Iterable[Row[Any]], studies: Mapping[tuple[int, int], int], limit: int
) -> tuple[list[int], cursors.Place | None]:
    """Up to `limit` studies, each at the place of its last row, and the place of the last row."""
    chosen: dict[int, None] = {}
    last = None
    for row in rows:
        study_id = studies[row.rank, row.id]
        if study_id not in chosen and len(chosen) == limit:
            break
        chosen.pop(study_id, None)
        chosen[study_id] = None
        last = (row.change, row.rank, row.id)
    return list(chosen), last


@cache
def page_query(last_rank: int) -> Select[Any]:
    """Rows after the place (`change`, `last_rank`, `row`), `limit` of them.

    From the beginning of a range of each table's index. Built once (see `queue/queues`).
    """
    last = _TABLES[last_rank]
    # With the row in the range; else SQLite walks all of one change.
    ranges = [_range(last_rank, last.c.change == _CHANGE, last.c.id > bindparam("row"))]
    for rank, table in enumerate(_TABLES):
        ranges.append(
            _range(
                rank, table.c.change > _CHANGE if rank <= last_rank else table.c.change >= _CHANGE
            )
        )
    found = union_all(*(select(each.subquery()) for each in ranges)).subquery()
    return select(found).order_by(found.c.change, found.c.rank, found.c.id).limit(_LIMIT)


def _range(rank: int, *chosen: ColumnElement[bool]) -> Select[Any]:
    table = _TABLES[rank]
    place: Label[int] = literal_column(str(rank), Integer).label("rank")
    query = select(table.c.change, place, table.c.id).where(
        *chosen, table.c.change < EndOfChanges()
    )
    return query.order_by(table.c.change, table.c.id).limit(_LIMIT)


def _studies_of(connection: Connection, rows: Iterable[Row[Any]]) -> Mapping[tuple[int, int], int]:
    """Row id of the study of each row."""
    ids: tuple[list[int], ...] = ([], [], [])
    for row in rows:
        ids[row.rank].append(row.id)
    found = {(0, row_id): row_id for row_id in ids[0]}
    for rank, query in ((1, _of_results(ids[1])), (2, _of_deliveries(ids[2]))):
        if ids[rank]:
            found.update({(rank, row.id): row.study for row in connection.execute(query)})
    return found


def _of_results(ids: Sequence[int]) -> Select[Any]:
    joined = result.join(study, study.c.study_instance_uid == result.c.study_instance_uid)
    return (
        select(result.c.id, study.c.id.label("study"))
        .select_from(joined)
        .where(result.c.id.in_(ids))
    )


def _of_deliveries(ids: Sequence[int]) -> Select[Any]:
    joined = delivery.join(document, document.c.id == delivery.c.document_id).join(
        result, result.c.id == document.c.result_id
    )
    with_study = joined.join(study, study.c.study_instance_uid == result.c.study_instance_uid)
    return (
        select(delivery.c.id, study.c.id.label("study"))
        .select_from(with_study)
        .where(delivery.c.id.in_(ids))
    )


def _items(connection: Connection, ids: Sequence[int]) -> list[Item]:
    if not ids:
        return []
    rows = {row.id: row for row in connection.execute(select(study).where(study.c.id.in_(ids)))}
    return items_of(connection, [rows[study_id] for study_id in ids])
