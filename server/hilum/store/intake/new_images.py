"""Images that have no row yet: their rows and those of their readings.

A few statements serve a whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select

from hilum.domain import Instance, Priority, ReadingState, RemovalReason, ServerReason
from hilum.store.database.prepared import PreparedStatement
from hilum.store.intake.received import Arrival
from hilum.store.queue import rejections
from hilum.store.rollouts import assign
from hilum.store.rollouts.assign import Assignments, ReadingReleases
from hilum.store.schema import codec
from hilum.store.schema.tables import instance, reading

# Statements are built once (see `queue/queues`).
_KNOWN = PreparedStatement(
    select(instance.c.sop_instance_uid).where(
        instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True))
    ),
    "uids",
)
# Each may have a header of 16 MiB, and PostgreSQL takes messages of less than 1 GiB.
_NEW_INSTANCES = (
    insert(instance)
    .returning(instance.c.id, instance.c.sop_instance_uid)
    .execution_options(insertmanyvalues_page_size=60)
)
_NEW_INSTANCE = PreparedStatement(_NEW_INSTANCES)
_FEW = 16
_NEXT_IDS = PreparedStatement(
    select(func.nextval("instance_id_seq")).select_from(func.generate_series(1, bindparam("count")))
)
_NEW_READINGS = PreparedStatement(insert(reading))
# Study Instance UID, the releases of its route, and whether a campaign names them
Key = tuple[str, tuple[str, ...], bool]


@dataclass(frozen=True, slots=True)
class NewImages:
    """Images whose rows are written, and the rows that are to follow.

    `readings`, and comparisons with `shadows`: by study, each shadow to the release reported.
    `waited_for`: the number of readings that the image's study waits for, by the arrival's
    position.
    """

    readings: list[dict[str, Any]] = field(default_factory=list)
    waited_for: dict[int, int] = field(default_factory=dict)
    shadows: dict[str, dict[str, str]] = field(default_factory=dict)


def find(connection: Connection, arrivals: Sequence[Arrival]) -> dict[int, Arrival]:
    """The arrivals of images without a row, by position; the first of each SOP Instance UID."""
    firsts: dict[str, int] = {}
    for position, arrival in enumerate(arrivals):
        firsts.setdefault(arrival.instance.sop_instance_uid, position)
    for (uid,) in _KNOWN.all(connection, {"uids": list(firsts)}):
        del firsts[uid]
    return {position: arrivals[position] for position in firsts.values()}


def insert_images(connection: Connection, new: Mapping[int, Arrival], now: float) -> NewImages:
    """Insert at least one image, by position; each of another image, none of which has a row.

    Raises IntegrityError when another process is faster.
    """
    ids, removals = _insert_instances(connection, [arrival.instance for arrival in new.values()])
    readers = readers_of(connection, list(new.values()), now)
    came = NewImages()
    for position, arrival in new.items():
        uid = arrival.instance.sop_instance_uid
        found = readers[key_of(arrival)]
        came.readings.extend(readings_of(arrival, ids[uid], found, now, is_removed=uid in removals))
        is_ended = uid in removals or bool(arrival.not_analysed)
        came.waited_for[position] = 0 if is_ended else len(found.reported)
    kept_out = {
        arrival.instance.study_instance_uid for arrival in new.values() if arrival.not_analysed
    }
    for (study_uid, *_), found in readers.items():
        if study_uid in kept_out:
            continue
        came.shadows.setdefault(study_uid, {}).update(found.shadows)
    return came


def raise_to(came: NewImages, study_uid: str, priority: int) -> None:
    """Give the new readings of a study at least this priority."""
    for item in came.readings:
        if item["study_instance_uid"] == study_uid and not item["is_shadow"]:
            item["priority"] = min(item["priority"], priority)


def insert_readings(connection: Connection, came: NewImages) -> None:
    """Insert the readings that studies wait for, and those of shadows."""
    if came.readings:
        _NEW_READINGS.write_each(connection, came.readings)


def _insert_instances(
    connection: Connection, new: Sequence[Instance]
) -> tuple[dict[str, int], dict[str, RemovalReason]]:
    """Insert the instances, and return their row ids by SOP Instance UID.

    Then the reasons of those that are out of results from the beginning.
    """
    removals = rejections.removals_of(connection, new)
    values = [_instance_values(item, removals) for item in new]
    if connection.dialect.name == "postgresql":
        values = _in_one_order(connection, values)
        is_at_once = len(values) > 1
    else:
        # A statement for several rows is put together anew each time, so few rows go one by one.
        is_at_once = len(values) > _FEW
    found = (
        connection.execute(_NEW_INSTANCES, values)
        if is_at_once
        else [_NEW_INSTANCE.one(connection, item) for item in values]
    )
    return {row.sop_instance_uid: row.id for row in found}, removals


def _in_one_order(connection: Connection, values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort by SOP Instance UID: an insert of an image waits for another insert of it.

    The ids tell the order of arrival all the same.
    """
    ids = _NEXT_IDS.all(connection, {"count": len(values)})
    numbered = [{**item, "id": number} for item, (number,) in zip(values, ids, strict=True)]
    return sorted(numbered, key=itemgetter("sop_instance_uid"))


def _instance_values(new: Instance, removals: dict[str, RemovalReason]) -> dict[str, Any]:
    removal = removals.get(new.sop_instance_uid)
    return {
        **codec.instance_values(new),
        "is_removed": removal is not None,
        "removal_reason": removal,
    }


def key_of(arrival: Arrival) -> Key:
    """Return the key of the releases that read the image."""
    return arrival.instance.study_instance_uid, arrival.releases, bool(arrival.campaigns)


def readers_of(
    connection: Connection, arrivals: Sequence[Arrival], now: float
) -> dict[Key, ReadingReleases]:
    """Return the releases that read, by `key_of` of each arrival."""
    assigned = assign.read(connection)
    # In one order, as studies are (see `intake/studies`): an insert of an assignment waits for
    # another insert of it.
    return {
        key: _readers_of_study(connection, assigned, key, now)
        for key in sorted(set(map(key_of, arrivals)))
    }


def _readers_of_study(
    connection: Connection, assigned: Assignments, key: Key, now: float
) -> ReadingReleases:
    """Return the releases of one study. Those of a campaign are independent of rollouts."""
    study_uid, releases, is_of_campaign = key
    if is_of_campaign:
        return ReadingReleases(releases)
    return assigned.readers(connection, study_uid, releases, now)


def readings_of(
    arrival: Arrival, instance_id: int, readers: ReadingReleases, now: float, *, is_removed: bool
) -> Iterator[dict[str, Any]]:
    """Yield the columns of the readings of one image by these releases.

    One of a rejected image, or that a rule keeps from all releases, has ended.
    """
    reason = (
        ServerReason.REJECTED
        if is_removed
        else ServerReason.NOT_ANALYSED_BY_RULE
        if arrival.not_analysed
        else None
    )
    common = {
        "instance_id": instance_id,
        "study_instance_uid": arrival.instance.study_instance_uid,
        "due_at": now,
        "state": ReadingState.DUE if reason is None else ReadingState.NOT_ANALYSED,
        "reason": reason,
        "detail": arrival.not_analysed or None,
        "finished_at": None if reason is None else now,
    }
    for release in readers.reported:
        yield {
            **common,
            "release": release,
            "priority": arrival.priority,
            "is_shadow": False,
            "campaign_id": arrival.campaigns.get(release),
        }
    # The last priority: shadow readings must not hold up the others.
    has_shadows = readers.reported and not arrival.not_analysed
    for release in readers.shadows if has_shadows else ():
        yield {
            **common,
            "release": release,
            "priority": Priority.REANALYSIS,
            "is_shadow": True,
            "campaign_id": None,
        }
