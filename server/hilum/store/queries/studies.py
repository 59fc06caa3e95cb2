"""The list of studies, page by page. A fixed number of queries, however many rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    Select,
    SelectBase,
    bindparam,
    func,
    select,
    text,
    tuple_,
    union,
)

from hilum.domain import DeliveryState, Outcome, Priority, StudyState
from hilum.store.database.prepared import PreparedStatement
from hilum.store.queries.report_states import report_state
from hilum.store.queue.queues import in_state, is_stuck
from hilum.store.schema import cursor as cursors
from hilum.store.schema.tables import delivery, document, instance, reading, result, study

Item = dict[str, Any]
_UIDS: BindParameter[Any] = bindparam("uids", expanding=True)


@dataclass(frozen=True, slots=True)
class StudyFilter:
    """Which studies, and in which order.

    All conditions hold together; `release` and `outcome` are of one current result. `oldest` first
    suits a client that follows the list: a study that gets another image moves towards the end and
    is met again. `needs_person`: a row of it ended as failed or dead and can be requeued.
    `is_withheld`: a report of it is withheld.
    """

    state: StudyState | None = None
    release: str | None = None
    outcome: str | None = None
    calling_ae_title: str | None = None
    received_since: float | None = None
    received_until: float | None = None
    order: Literal["newest", "oldest"] = "newest"
    needs_person: bool = False
    is_withheld: bool = False


def page(
    connection: Connection, chosen: StudyFilter, limit: int, cursor: str | None
) -> tuple[list[Item], str | None]:
    """One page and the cursor of the next."""
    rows = connection.execute(page_query(chosen, limit, cursor)).all()
    shown = items_of(connection, rows[:limit])
    last = rows[limit - 1] if len(rows) > limit else None
    return shown, (
        cursors.encode(f"studies-{chosen.order}", float(last.last_received_at), last.id)
        if last
        else None
    )


def items_of(connection: Connection, rows: Iterable[Row[Any]]) -> list[Item]:
    """Studies of these rows with their images, current results and deliveries."""
    items = [study_item(row) for row in rows]
    _add_summaries(connection, items)
    return items


def named(connection: Connection, study_instance_uids: Sequence[str]) -> list[Item]:
    """The studies of these UIDs that are there, in any order."""
    return items_of(
        connection,
        connection.execute(
            select(study).where(study.c.study_instance_uid.in_(study_instance_uids))
        ).all(),
    )


def page_query(chosen: StudyFilter, limit: int, cursor: str | None) -> Select[Any]:
    """The studies of one page and one more, which says whether there is a next page.

    Keyset on an index: page 1000 costs as page 1.
    """
    query = select(study).where(*_conditions(chosen)).limit(limit + 1)
    # Looked up; else SQLite walks all studies in their order, to the end if they fill no page.
    if few := list(_few(chosen)):
        query = query.where(*(study.c.id.in_(ids) for ids in few)).with_hint(
            study, "NOT INDEXED", "sqlite"
        )
    after = None if cursor is None else cursors.decode(f"studies-{chosen.order}", cursor)
    return _ordered(query, after, is_oldest_first=chosen.order == "oldest")


def _ordered(
    query: Select[Any], after: tuple[float, int] | None, *, is_oldest_first: bool
) -> Select[Any]:
    """The query in its order, behind the cursor's row."""
    key = (study.c.last_received_at, study.c.id)
    if is_oldest_first:
        query = query.order_by(*key)
        return (
            query
            if after is None
            else query.where(tuple_(*key) > after, study.c.last_received_at >= after[0])
        )
    query = query.order_by(*(column.desc() for column in key))
    return (
        query
        if after is None
        else query.where(tuple_(*key) < after, study.c.last_received_at <= after[0])
    )


def _conditions(chosen: StudyFilter) -> Iterable[ColumnElement[bool]]:
    if chosen.state is not None:
        # In the statement's text: word for word the condition of the partial index.
        yield in_state(study, chosen.state)
        if chosen.state is not StudyState.CLOSED:
            yield text("study.state <> 'closed'")  # type: ignore[misc]  # a clause that stands for a condition
    if chosen.calling_ae_title is not None:
        yield study.c.calling_ae_title == chosen.calling_ae_title
    if chosen.received_since is not None:
        yield study.c.last_received_at >= chosen.received_since
    if chosen.received_until is not None:
        yield study.c.last_received_at < chosen.received_until
    if chosen.release is not None or chosen.outcome is not None:
        yield _has_result(chosen.release, chosen.outcome)


def _few(chosen: StudyFilter) -> Iterable[SelectBase]:
    """Row ids from the partial indexes of leased or stuck rows."""
    if chosen.state in (StudyState.LEASED, StudyState.FAILED):
        of_state = study.alias("of_state")
        yield select(of_state.c.id).where(in_state(of_state, chosen.state))
    if chosen.needs_person:
        yield _NEED_PERSON
    if chosen.is_withheld:
        yield _ARE_WITHHELD


def _need_person() -> SelectBase:
    own = study.alias("own")
    sent = result.join(document, document.c.result_id == result.c.id).join(
        delivery, delivery.c.document_id == document.c.id
    )
    uids = union(
        select(reading.c.study_instance_uid).where(is_stuck(reading)),
        select(result.c.study_instance_uid).where(is_stuck(result)),
        select(result.c.study_instance_uid).select_from(sent).where(is_stuck(delivery)),
    )
    return union(
        select(own.c.id).where(is_stuck(own)),
        select(own.c.id).where(own.c.study_instance_uid.in_(uids)),
    )


def _are_withheld() -> SelectBase:
    own = study.alias("own")
    sent = result.join(document, document.c.result_id == result.c.id).join(
        delivery, delivery.c.document_id == document.c.id
    )
    uids = (
        select(result.c.study_instance_uid)
        .select_from(sent)
        .where(in_state(delivery, DeliveryState.WITHHELD))
    )
    return select(own.c.id).where(own.c.study_instance_uid.in_(uids))


def _has_result(release: str | None, outcome: str | None) -> ColumnElement[bool]:
    query = select(result.c.id).where(
        result.c.study_instance_uid == study.c.study_instance_uid, result.c.is_current.is_(True)
    )
    if release is not None:
        query = query.where(result.c.release == release)
    if outcome is not None:
        query = query.where(result.c.outcome == outcome)
        if outcome != Outcome.ANALYSED:
            query = query.where(text("result.outcome <> 'analysed'"))
    # SQLite knows no frequencies: it would look up all studies of the release for each study.
    return query.with_hint(result, "INDEXED BY ix_result_study_instance_uid", "sqlite").exists()


def priorities_since(connection: Connection, since: float) -> dict[Priority, int]:
    """Studies of each priority that got an image since then, zeros too."""
    query = (
        select(study.c.priority, func.count())
        .where(study.c.last_received_at >= since)
        .group_by(study.c.priority)
    )
    found = {priority: int(count) for priority, count in connection.execute(query)}
    return {priority: found.get(priority.value, 0) for priority in Priority}


def study_item(row: Row[Any]) -> Item:
    """A study's own row."""
    return {
        "id": row.id,
        "study_instance_uid": row.study_instance_uid,
        "state": row.state,
        "reason": row.reason,
        "revision": row.revision,
        "priority": _priority(row.priority),
        "calling_ae_title": row.calling_ae_title,
        "called_ae_title": row.called_ae_title,
        "rule": row.rule,
        "worklist": row.worklist,
        "received_first": row.first_received_at,
        "received_last": row.last_received_at,
        "quiet_until": row.quiet_until,
        "open_readings": row.open_readings,
    }


def _priority(value: int) -> str:
    return Priority(value).name.lower()


def _add_summaries(connection: Connection, items: list[Item]) -> None:
    """Count images, name current results, count their deliveries by state."""
    uids = [item["study_instance_uid"] for item in items]
    images, results, deliveries = (
        _by_study(connection, statement, uids)
        for statement in (_IMAGE_COUNTS, _CURRENT_RESULTS, _DELIVERY_COUNTS)
    )
    for item in items:
        uid = item["study_instance_uid"]
        item["images"] = sum(row["images"] for row in images[uid])
        item["results"] = results[uid]
        item["deliveries"] = {row["state"]: row["deliveries"] for row in deliveries[uid]}
        item["report_state"] = report_state(
            item["state"], [row["state"] for row in results[uid]], item["deliveries"]
        )


def _by_study(
    connection: Connection, statement: PreparedStatement, uids: list[str]
) -> Mapping[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for row in statement.all(connection, {"uids": uids}):
        item = row._asdict()
        found[item.pop("study_instance_uid")].append(item)
    return found


def _image_counts() -> Select[Any]:
    of = instance.c.study_instance_uid
    return select(of, func.count().label("images")).where(of.in_(_UIDS)).group_by(of)


def _current_results() -> Select[Any]:
    columns = (
        result.c.study_instance_uid,
        result.c.id,
        result.c.release,
        result.c.revision,
        result.c.state,
        result.c.outcome,
    )
    query = select(*columns, result.c.outcome_reason.label("reason"), result.c.created_at)
    return query.where(
        result.c.study_instance_uid.in_(_UIDS), result.c.is_current.is_(True)
    ).order_by(result.c.id)


def _delivery_counts() -> Select[Any]:
    of = result.c.study_instance_uid
    joined = result.join(document, document.c.result_id == result.c.id).join(
        delivery, delivery.c.document_id == document.c.id
    )
    query = select(of, delivery.c.state, func.count().label("deliveries")).select_from(joined)
    return query.where(of.in_(_UIDS), result.c.is_current.is_(True)).group_by(of, delivery.c.state)


_NEED_PERSON = _need_person()
_ARE_WITHHELD = _are_withheld()
_IMAGE_COUNTS, _CURRENT_RESULTS, _DELIVERY_COUNTS = (
    PreparedStatement(query(), "uids")
    for query in (_image_counts, _current_results, _delivery_counts)
)
