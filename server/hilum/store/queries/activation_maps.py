"""Class activation maps of a study's readings, for the drawing of heat maps.

They are not part of the jobs: most reports need none.
"""

from __future__ import annotations

from sqlalchemy import Connection, and_, select

from hilum.domain import ActivationMaps, ReadingState
from hilum.store.schema.tables import instance, reading


def activation_maps(
    connection: Connection, study_uid: str, release: str
) -> dict[str, ActivationMaps]:
    """The maps of each analysed image by one release, by SOP Instance UID.

    An image without maps is left out.
    """
    joined = reading.join(instance, instance.c.id == reading.c.instance_id)
    query = select(instance.c.sop_instance_uid, reading.c.logits, reading.c.cam).select_from(joined)
    of_release = and_(reading.c.study_instance_uid == study_uid, reading.c.release == release)
    rows = connection.execute(
        query.where(
            of_release, reading.c.state == ReadingState.ANALYSED, reading.c.cam.is_not(None)
        )
    )
    return {row.sop_instance_uid: ActivationMaps(tuple(row.logits), bytes(row.cam)) for row in rows}
