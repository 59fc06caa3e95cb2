"""Queries of the pages for people, beyond REST.

The front page as one snapshot, and the place of an image's pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from hilum.domain import ReadingState
from hilum.settings import Destination
from hilum.store.database.clocks import moment_in
from hilum.store.database.prepared import PreparedStatement
from hilum.store.installation import heartbeats
from hilum.store.queries import queues, withheld
from hilum.store.queries import studies as study_views
from hilum.store.queries.studies import Item, StudyFilter
from hilum.store.schema.tables import destination, instance, reading, result, rollout


def front(
    connection: Connection,
    chosen: StudyFilter,
    limit: int,
    cursor: str | None,
    now: float,
    failing_before: float,
    configured: Mapping[str, Destination],
) -> Item:
    """The front page: one page of studies, the queues, and the facts behind readiness.

    With the findings of current results, the deliveries withheld from the `configured`
    destinations, and the rollouts that may end or begin that. A fixed number of queries, however
    many rows. Raises BadCursor.
    """
    studies, next_cursor = study_views.page(connection, chosen, limit, cursor)
    return {
        "studies": _complete(connection, studies),
        "next_cursor": next_cursor,
        "queues": queues.queues(connection, now),
        "stuck": queues.stuck(connection),
        "failing": queues.failing(connection, failing_before),
        "destinations": destinations(connection),
        "processes": heartbeats.processes(connection, now),
        "hosts": heartbeats.hosts(connection, moment_in(connection, lambda: now)),
        "withheld": withheld.withheld(connection, configured),
        "rollouts": rollouts(connection),
    }


def rollouts(connection: Connection) -> list[Item]:
    """Every alias that was ever changed, by name."""
    return [row._asdict() for row in connection.execute(select(rollout).order_by(rollout.c.alias))]


def lines(connection: Connection, study_instance_uids: Sequence[str]) -> list[Item]:
    """These studies with the findings of their current results, in this order.

    A study that is not there is left out.
    """
    found = study_views.named(connection, study_instance_uids)
    return _complete(
        connection,
        sorted(found, key=lambda item: study_instance_uids.index(item["study_instance_uid"])),
    )


def _complete(connection: Connection, studies: list[Item]) -> list[Item]:
    _add_findings(connection, studies)
    _add_failed_readings(connection, studies)
    return studies


def destinations(connection: Connection) -> list[Item]:
    """Used destinations: the dispatcher of each, and whether a person paused it."""
    return [
        row._asdict()
        for row in connection.execute(select(destination).order_by(destination.c.name))
    ]


def stored_image(
    connection: Connection, study_instance_uid: str, sop_instance_uid: str
) -> Item | None:
    """The place of the pixels of an image of this study, whether they are there, their digest.

    None: no such image.
    """
    columns = (
        instance.c.path,
        instance.c.digest,
        instance.c.is_removed,
        instance.c.pixels_removed_at,
    )
    query = select(*columns).where(
        instance.c.sop_instance_uid == sop_instance_uid,
        instance.c.study_instance_uid == study_instance_uid,
    )
    row = connection.execute(query).first()
    return None if row is None else row._asdict()


def _add_findings(connection: Connection, studies: list[Item]) -> None:
    """Add the findings of current results.

    Only the columns of a line leave the database: the whole content of a result is ten times as
    much.
    """
    current = {item["id"]: item for study in studies for item in study["results"]}
    for row in _FINDINGS.all(connection, {"ids": [*current]}):
        current[row.id].update(
            findings=row.findings or [], is_trained=row.is_trained, is_calibrated=row.is_calibrated
        )


def _add_failed_readings(connection: Connection, studies: list[Item]) -> None:
    """Add the number of readings of each study that need a person."""
    uids = [item["study_instance_uid"] for item in studies]
    rows = _FAILED_READINGS.all(connection, {"uids": uids})
    counts = {row.study_instance_uid: row.readings for row in rows}
    for item in studies:
        item["failed_readings"] = counts.get(item["study_instance_uid"], 0)


def _findings() -> Select[Any]:
    content = result.c.content
    is_trained, is_calibrated = (
        content[name].as_boolean().label(name) for name in ("is_trained", "is_calibrated")
    )
    columns = (result.c.id, content["findings"].label("findings"), is_trained, is_calibrated)
    return select(*columns).where(result.c.id.in_(bindparam("ids", expanding=True)))


def _failed_readings() -> Select[Any]:
    of = reading.c.study_instance_uid
    failed = reading.c.state == ReadingState.FAILED
    query = select(of, func.count().label("readings")).where(
        of.in_(bindparam("uids", expanding=True)), failed
    )
    return query.group_by(of)


_FINDINGS = PreparedStatement(_findings(), "ids")
_FAILED_READINGS = PreparedStatement(_failed_readings(), "uids")
