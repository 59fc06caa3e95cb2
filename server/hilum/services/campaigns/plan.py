"""The plan of a campaign: parts of the source, each written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hilum.domain import ARCHIVE, Campaign
from hilum.services.campaigns.archive_source import plan_archive
from hilum.services.campaigns.verbs import require_name
from hilum.settings import Settings
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from hilum.store.queries.stored_series import StoredSelection


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """How far a plan is: series that are new in it, and the position in the source."""

    series: int
    cursor: str


def plan(
    settings: Settings,
    campaigns: Campaigns,
    name: str,
    source: str,
    request: Mapping[str, Any],
    note: Callable[[PlanCounts], None],
) -> Campaign:
    """Plan a campaign, or continue its plan, and fix it.

    It may be stopped at any moment and repeated. Raises CannotRun, SourceError, and
    ConfigurationError.
    """
    require_name(name)
    known = campaigns.create(name, source, request)
    count = 0
    for part in _parts(settings, known):
        count += campaigns.add(known.id, part)
        note(PlanCounts(count, part.cursor))
    return campaigns.end_plan(name)


def _parts(settings: Settings, known: Campaign) -> Iterator[PlanPart]:
    if known.source == ARCHIVE:
        return plan_archive(settings.ledger_url, _stored(known.request), known.plan_cursor)
    raise NotImplementedError


def _stored(request: Mapping[str, Any]) -> StoredSelection:
    """Return the selection of a plan of the archive; moments are ISO 8601 with a time zone."""
    return StoredSelection(
        since=_seconds(request.get("since")),
        until=_seconds(request.get("until")),
        calling_ae_title=request.get("from"),
        called_ae_title=request.get("to"),
        study_uids=tuple(request.get("studies", ())),
    )


def _seconds(moment: str | None) -> float | None:
    return None if moment is None else datetime.fromisoformat(moment).timestamp()
