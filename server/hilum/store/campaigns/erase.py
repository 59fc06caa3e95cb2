"""Erasure of a study from the lists of campaigns."""

from __future__ import annotations

from sqlalchemy import Connection, String, cast, select, update

from hilum.domain import CampaignImageState, SeriesReason, SeriesState
from hilum.store.installation.salt import Tombstones
from hilum.store.schema.tables import campaign_image, campaign_row, campaign_series


def erase(
    connection: Connection, study_uid: str, stands_for: str, tombstones: Tombstones, now: float
) -> None:
    """Replace the UIDs of a study, and empty its origins: paths often name a patient."""
    query = select(campaign_series.c.id, campaign_series.c.series_instance_uid).where(
        campaign_series.c.study_instance_uid == study_uid
    )
    for row in connection.execute(query).all():
        _erase_images(connection, row.id, tombstones)
        connection.execute(
            update(campaign_series)
            .where(campaign_series.c.id == row.id)
            .values(
                study_instance_uid=stands_for,
                series_instance_uid=tombstones.of(row.series_instance_uid),
                origin="",
                state=SeriesState.DEAD,
                reason=SeriesReason.ERASED,
                detail=None,
                finished_at=now,
            )
        )
    names_it = cast(campaign_row.c.study_instance_uids, String).contains(f'"{study_uid}"')
    connection.execute(
        update(campaign_row).where(names_it).values(key="", study_instance_uids=[stands_for])
    )


def _erase_images(connection: Connection, series_id: int, tombstones: Tombstones) -> None:
    query = select(campaign_image.c.id, campaign_image.c.sop_instance_uid).where(
        campaign_image.c.series_id == series_id
    )
    for row in connection.execute(query).all():
        connection.execute(
            update(campaign_image)
            .where(campaign_image.c.id == row.id)
            .values(
                sop_instance_uid=tombstones.of(row.sop_instance_uid),
                # the row keeps its place among images of several paths
                origin=f"erased/{row.id}",
                state=CampaignImageState.MISSING,
                reason=SeriesReason.ERASED,
                detail=None,
                is_fetched=False,
            )
        )
