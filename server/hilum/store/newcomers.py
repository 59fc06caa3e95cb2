"""Images that have no row yet: theirs, those of their readings and those of their studies, in a few statements for a whole batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from hilum.domain import Instance, Lane, ReadingState, Reason, RemovalReason
from hilum.store import assigning, codec, comparing, rejecting
from hilum.store.arrival import Arrival
from hilum.store.assigning import Readers
from hilum.store.growing import Growth, grow
from hilum.store.schema import instance, reading

# Statements are built once (see `queues`).
_KNOWN = select(instance.c.sop_instance_uid).where(instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True)))
# Each may have a header of 16 MiB, and PostgreSQL takes messages of less than 1 GiB.
_NEW_INSTANCES = insert(instance).returning(instance.c.id, instance.c.sop_instance_uid).execution_options(insertmanyvalues_page_size=60)
_NEW_READINGS = insert(reading)
_Key = tuple[str, tuple[str, ...]]  # Study Instance UID, and the releases of its route


def find(connection: Connection, arrivals: Sequence[Arrival]) -> dict[int, Arrival]:
    """Those of images that have no row, each the first of its SOP Instance UID, by their positions."""
    firsts: dict[str, int] = {}
    for position, arrival in enumerate(arrivals):
        firsts.setdefault(arrival.instance.sop_instance_uid, position)
    for uid in connection.execute(_KNOWN, {"uids": list(firsts)}).scalars():
        del firsts[uid]
    return {position: arrivals[position] for position in firsts.values()}


def insert_all(connection: Connection, arrivals: Sequence[Arrival], now: float) -> None:
    """At least one; each of another image, none of which has a row. Raises IntegrityError when somebody else is faster."""
    removals = rejecting.removals_of(connection, [arrival.instance for arrival in arrivals])
    values = [_instance_values(arrival.instance, removals) for arrival in arrivals]
    ids = {row.sop_instance_uid: row.id for row in connection.execute(_NEW_INSTANCES, values)}
    readers = _readers(connection, arrivals, now)
    readings: list[dict[str, Any]] = []
    grown: dict[str, Growth] = {}
    for arrival in arrivals:
        new, found = arrival.instance, readers[_key(arrival)]
        is_removed = new.sop_instance_uid in removals
        readings += _readings(arrival, ids[new.sop_instance_uid], found, now, is_removed=is_removed)
        grown.setdefault(new.study_instance_uid, Growth()).add(arrival, 0 if is_removed else len(found.reported))
    grow(connection, grown, now)
    if readings:
        connection.execute(_NEW_READINGS, readings)
    for (study_uid, _), found in readers.items():
        comparing.follow(connection, study_uid, found.shadows, now)


def _instance_values(new: Instance, removals: dict[str, RemovalReason]) -> dict[str, Any]:
    removal = removals.get(new.sop_instance_uid)
    return {**codec.instance_values(new), "is_removed": removal is not None, "removal_reason": removal}


def _key(arrival: Arrival) -> _Key:
    return arrival.instance.study_instance_uid, arrival.releases


def _readers(connection: Connection, arrivals: Sequence[Arrival], now: float) -> dict[_Key, Readers]:
    assigned = assigning.read(connection)
    # In one order, as studies are (see `growing`): an assignment is inserted, which waits for who inserts the same one.
    return {key: assigned.readers(connection, *key, now) for key in sorted(set(map(_key, arrivals)))}


def _readings(arrival: Arrival, instance_id: int, readers: Readers, now: float, *, is_removed: bool) -> Iterator[dict[str, Any]]:
    common = {
        "instance_id": instance_id,
        "study_instance_uid": arrival.instance.study_instance_uid,
        "due_at": now,
        "state": ReadingState.NOT_ANALYSED if is_removed else ReadingState.DUE,
        "reason": Reason.REJECTED if is_removed else None,
        "finished_at": now if is_removed else None,
    }
    for release in readers.reported:
        yield {**common, "release": release, "lane": arrival.lane, "is_shadow": False}
    # The last lane: what nobody waits for must not hold up what somebody does.
    for release in readers.shadows if readers.reported else ():
        yield {**common, "release": release, "lane": Lane.REANALYSIS, "is_shadow": True}
