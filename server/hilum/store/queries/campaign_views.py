"""The read-only queries on campaigns.

Apart from `views`, whose imports take longer than a status of a campaign.
"""

from __future__ import annotations

from typing import Any

from hilum.store.database.reader import LedgerReader
from hilum.store.queries import campaigns
from hilum.store.queries.campaigns import CampaignOverview, CampaignProgress, Days

Item = dict[str, Any]


class CampaignViews(LedgerReader):
    """Campaigns in the ledger at an SQLAlchemy URL; see `LedgerReader`."""

    def campaigns(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[CampaignOverview], str | None]:
        """One page of campaigns, newest first, and the cursor of the next. Raises BadCursor."""
        with self._snapshot() as connection:
            return campaigns.page(connection, limit, cursor)

    def campaign(self, name: str) -> CampaignProgress | None:
        """Everything about one campaign but its dead series; None: there is none."""
        with self._snapshot() as connection:
            return campaigns.progress(connection, name, self._clock())

    def campaign_days(self, name: str) -> Days | None:
        """Series by state of each day of a campaign; None: there is none."""
        with self._snapshot() as connection:
            known = campaigns.find(connection, name)
            return None if known is None else campaigns.days(connection, known.id)

    def dead_series(
        self, name: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Item], str | None] | None:
        """One page of dead series of a campaign, newest first, and the cursor of the next.

        None: there is no such campaign. Raises BadCursor.
        """
        with self._snapshot() as connection:
            known = campaigns.find(connection, name)
            if known is None:
                return None
            return campaigns.dead_series(connection, known.id, limit, cursor)

    def watched_campaigns(self, limit: int, over_seconds: float) -> list[CampaignOverview]:
        """Campaigns that a monitor follows: see `campaigns.watched`."""
        with self._snapshot() as connection:
            return campaigns.watched(connection, self._clock(), limit, over_seconds)
