"""A live sender sends an image that a campaign has brought: the image and its study become its own.

The campaign keeps its readings. Releases of the live sender that have not read the image do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, and_, select, update

from hilum.domain import Instance
from hilum.store.intake import new_images
from hilum.store.intake.new_images import NewImages
from hilum.store.intake.received import Arrival
from hilum.store.rollouts.assign import ReadingReleases
from hilum.store.schema.tables import instance, reading

Taken = Mapping[int, tuple[Arrival, Row[Any]]]
"""By the arrival's position: the arrival, and the image's row as it was."""


def change_sender(connection: Connection, known: Row[Any], new: Instance) -> None:
    """Write the live sender into the image's row, which is locked."""
    names = ("calling_ae_title", "called_ae_title", "peer_address")
    values = {name: getattr(new, name) for name in names}
    connection.execute(update(instance).where(instance.c.id == known.id).values(values))


def readers(
    connection: Connection, taken: Taken, now: float
) -> Mapping[new_images.Key, ReadingReleases]:
    """Return the releases that read these images. Rollouts are locked before readings."""
    if not taken:
        return {}
    return new_images.readers_of(connection, [arrival for arrival, _ in taken.values()], now)


def add_readings(
    connection: Connection,
    taken: Taken,
    read_by: Mapping[new_images.Key, ReadingReleases],
    came: NewImages,
    now: float,
) -> None:
    """Add the readings that the live sender's releases lack; those of the images are locked.

    A reading of the same release by a campaign becomes live.
    """
    for position, (arrival, known) in taken.items():
        there = _releases_of(connection, known.id)
        found = read_by[new_images.key_of(arrival)]
        lacking = ReadingReleases(
            tuple(name for name in found.reported if name not in there),
            {}
            if arrival.not_analysed
            else {name: reported for name, reported in found.shadows.items() if name not in there},
        )
        columns = new_images.readings_of(arrival, known.id, lacking, now, is_removed=False)
        came.readings.extend(columns)
        came.waited_for[position] = 0 if arrival.not_analysed else len(lacking.reported)
        uid = arrival.instance.study_instance_uid
        came.shadows.setdefault(uid, {}).update(lacking.shadows)
        if arrival.not_analysed:
            continue  # the rule keeps the study from releases: what a campaign read stays its own
        of_campaign = and_(
            reading.c.instance_id == known.id,
            reading.c.release.in_(found.reported),
            reading.c.campaign_id.is_not(None),
        )
        connection.execute(update(reading).where(of_campaign).values(campaign_id=None))


def _releases_of(connection: Connection, instance_id: int) -> set[str]:
    query = select(reading.c.release).where(reading.c.instance_id == instance_id)
    return set(connection.execute(query).scalars())
