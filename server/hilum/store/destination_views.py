"""Destinations as people ask for them: paused or not, and how many deliveries wait, are in work, or need a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from hilum.settings import Destination
from hilum.store import queue_views, withheld_views
from hilum.store.schema import destination

Item = dict[str, Any]
_COUNTS = ("due", "waiting", "leased")


def states(connection: Connection, configured: Mapping[str, Destination], now: float) -> list[Item]:
    """One item for each destination that is configured or has open deliveries, by name."""
    found = {name: _empty(name, is_configured=True) for name in configured}
    for row in connection.execute(select(destination)):
        found.setdefault(row.name, _empty(row.name, is_configured=False)).update(is_paused=row.is_paused, owner=row.owner)
    for queue in queue_views.queues(connection, now):
        if (name := queue["destination"]) is not None:
            item = found.setdefault(name, _empty(name, is_configured=False))
            item.update({count: item[count] + queue[count] for count in _COUNTS})
    for stuck in queue_views.stuck(connection):
        if (name := stuck["destination"]) is not None:
            item = found.setdefault(name, _empty(name, is_configured=False))
            item["dead"][stuck["reason"] or "unknown"] = stuck["items"]
    for kept in withheld_views.withheld(connection, configured):
        item = found.setdefault(kept["destination"], _empty(kept["destination"], is_configured=False))
        item["withheld"][kept["reason"]] = kept["items"]
        item["releasable"] += kept["releasable"]
    for failing in queue_views.failing(connection, now):
        found[failing["destination"]]["detail"] = failing["detail"]
    return sorted(found.values(), key=lambda item: str(item["name"]))


def _empty(name: str, *, is_configured: bool) -> Item:
    counts = dict.fromkeys(_COUNTS, 0)
    said: Item = {"dead": {}, "withheld": {}, "releasable": 0, "detail": None}
    return {"name": name, "is_configured": is_configured, "is_paused": False, "owner": None, **counts, **said}
