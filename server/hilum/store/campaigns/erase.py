"""Erasure of a study from the lists of campaigns."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, String, cast, select, update

from hilum.domain import CampaignImageState, SeriesReason, SeriesState
from hilum.store.installation.salt import Tombstones
from hilum.store.schema.tables import campaign, campaign_image, campaign_row, campaign_series


def erase(
    connection: Connection, study_uid: str, stands_for: str, tombstones: Tombstones, now: float
) -> None:
    """Replace the UIDs of a study, and empty its origins: paths often name a patient."""
    for series_id, series_uid in _series(connection, study_uid):
        _erase_images(connection, series_id, tombstones)
        connection.execute(
            update(campaign_series)
            .where(campaign_series.c.id == series_id)
            .values(
                study_instance_uid=stands_for,
                series_instance_uid=tombstones.of(series_uid),
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


def _series(connection: Connection, study_uid: str) -> Iterator[tuple[int, str]]:
    """Yield the series of a study: of each campaign along its index."""
    for campaign_id in connection.execute(select(campaign.c.id)).scalars().all():
        query = (
            select(campaign_series.c.id, campaign_series.c.series_instance_uid)
            .where(
                campaign_series.c.campaign_id == campaign_id,
                campaign_series.c.study_instance_uid == study_uid,
            )
            .order_by(campaign_series.c.id)
        )
        for row in connection.execute(query).all():
            yield row.id, row.series_instance_uid


def _erase_images(connection: Connection, series_id: int, tombstones: Tombstones) -> None:
    query = select(campaign_image.c.id, campaign_image.c.sop_instance_uid).where(
        campaign_image.c.series_id == series_id
    )
    query = query.order_by(campaign_image.c.id)
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
