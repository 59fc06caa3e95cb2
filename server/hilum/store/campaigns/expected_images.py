"""The images that campaigns wait for, as reception asks for them."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, or_, select

from hilum.domain import CampaignState
from hilum.store.schema.tables import campaign, campaign_image

_TOGETHER = 500  # a database limits the values of one query


def campaigns_of(
    connection: Connection, sop_instance_uids: Collection[str]
) -> dict[str, dict[str, int]]:
    """Return the campaigns of these images: by SOP Instance UID, then by release.

    Of two campaigns with one release the older one counts. A cancelled one wants only the images
    that it had asked for.
    """
    uids = sorted(set(sop_instance_uids))
    found: dict[str, dict[str, int]] = {}
    for start in range(0, len(uids), _TOGETHER):
        query = (
            select(campaign_image.c.sop_instance_uid, campaign.c.release, campaign.c.id)
            .join(campaign, campaign.c.id == campaign_image.c.campaign_id)
            .where(
                campaign_image.c.sop_instance_uid.in_(uids[start : start + _TOGETHER]),
                campaign.c.release.is_not(None),
                or_(
                    campaign.c.state != CampaignState.CANCELLED,
                    campaign_image.c.is_fetched.is_(True),
                ),
            )
            .order_by(campaign.c.id)
        )
        for uid, release, campaign_id in connection.execute(query):
            found.setdefault(uid, {}).setdefault(release, campaign_id)
    return found


def are_any(connection: Connection) -> bool:
    """Return whether any campaign has begun and is not over."""
    query = select(campaign.c.id).where(
        campaign.c.started_at.is_not(None), campaign.c.finished_at.is_(None)
    )
    return connection.execute(query.limit(1)).first() is not None


def delivers(connection: Connection, campaign_id: int) -> bool:
    """Return whether documents of this campaign go to the destinations."""
    query = select(campaign.c.options).where(campaign.c.id == campaign_id)
    options = connection.execute(query).scalar_one_or_none()
    return bool(options and options.get("delivers"))
