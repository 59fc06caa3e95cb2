"""Destinations as people ask for them.

Paused or not, and how many deliveries wait, are in work, or need a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, func, select, text

from hilum.domain import DeliveryState
from hilum.settings import Destination
from hilum.store.queries import queues, withheld
from hilum.store.queue import asked_commitments
from hilum.store.schema.tables import delivery, destination

Item = dict[str, Any]
_COUNTS = ("due", "waiting", "leased")
_NONE = ("uncommitted", "releasable")
_LAST = ("detail", "delivered_at", "last_dead", "uncommitted_since")
_NEWEST = 10_000
_STUCK = text("state IN ('failed', 'dead')")  # word for word the condition of the partial index


def states(connection: Connection, configured: Mapping[str, Destination], now: float) -> list[Item]:
    """One item for each destination that is configured or has open deliveries, by name."""
    found = {name: _empty(name, is_configured=True) for name in configured}
    for row in connection.execute(select(destination)):
        _item(found, row.name).update(is_paused=row.is_paused, owner=row.owner)
    _add_queues(connection, found, now)
    _add_withheld(connection, found, configured)
    for failing in queues.failing(connection, now):
        found[failing["destination"]]["detail"] = failing["detail"]
    for name, (count, since) in asked_commitments.waiting(connection).items():
        _item(found, name).update(uncommitted=count, uncommitted_since=since)
    _add_last(connection, found)
    return sorted(found.values(), key=lambda item: str(item["name"]))


def _item(found: dict[str, Item], name: str) -> Item:
    return found.setdefault(name, _empty(name, is_configured=False))


def _add_queues(connection: Connection, found: dict[str, Item], now: float) -> None:
    for queue in queues.queues(connection, now):
        if (name := queue["destination"]) is not None:
            item = _item(found, name)
            item.update({count: item[count] + queue[count] for count in _COUNTS})
    for stuck in queues.stuck(connection):
        if (name := stuck["destination"]) is not None:
            _item(found, name)["dead"][stuck["reason"] or "unknown"] = stuck["items"]


def _add_withheld(
    connection: Connection, found: dict[str, Item], configured: Mapping[str, Destination]
) -> None:
    for kept in withheld.withheld(connection, configured):
        item = _item(found, kept["destination"])
        item["withheld"][kept["reason"]] = kept["items"]
        item["releasable"] += kept["releasable"]


def _add_last(connection: Connection, found: Mapping[str, Item]) -> None:
    for name, delivered_at in _last_deliveries(connection):
        if name in found:
            found[name]["delivered_at"] = delivered_at
    for name, dead in _last_dead(connection):
        found[name]["last_dead"] = dead


def _last_deliveries(connection: Connection) -> Iterator[tuple[str, float]]:
    """The moment at which each destination took its last document.

    Looks at the newest deliveries alone; older moments are not shown.
    """
    # A query of its own: the planner does not know how few rows are above a subquery's number.
    newest = connection.execute(select(func.max(delivery.c.id))).scalar() or 0
    query = select(delivery.c.destination, func.max(delivery.c.finished_at).label("at")).group_by(
        delivery.c.destination
    )
    for row in connection.execute(
        query.where(delivery.c.id > newest - _NEWEST, delivery.c.state == DeliveryState.DELIVERED)
    ):
        yield row.destination, row.at


def _last_dead(connection: Connection) -> Iterator[tuple[str, Item]]:
    """The last document that was given up for each destination, and its last error."""
    last = (
        select(delivery.c.destination, func.max(delivery.c.finished_at).label("at"))
        .where(_STUCK)
        .group_by(delivery.c.destination)
    )
    for row in connection.execute(last).all():
        query = select(delivery.c.reason, delivery.c.detail, delivery.c.finished_at.label("at"))
        is_last = (delivery.c.destination == row.destination, delivery.c.finished_at == row.at)
        yield (
            row.destination,
            connection.execute(query.where(_STUCK, *is_last).limit(1)).one()._asdict(),
        )


def _empty(name: str, *, is_configured: bool) -> Item:
    counts = dict.fromkeys(_COUNTS, 0)
    said: Item = {"dead": {}, "withheld": {}, **dict.fromkeys(_NONE, 0), **dict.fromkeys(_LAST)}
    return {
        "name": name,
        "is_configured": is_configured,
        "is_paused": False,
        "owner": None,
        **counts,
        **said,
    }
