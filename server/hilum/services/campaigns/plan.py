"""The plan of a campaign: parts of the source, each written in one transaction."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from hilum.domain import ARCHIVE, FILES, PICTURES, Campaign, PlannedSeries
from hilum.retrieve.lists.row_key import row_key
from hilum.retrieve.lists.study_list import StudyList, read_list
from hilum.retrieve.query.dates import DateRange, plan_dates
from hilum.retrieve.query.plan_step import PlanStep
from hilum.retrieve.query.rows import plan_rows
from hilum.services.campaigns.archive_source import plan_archive
from hilum.services.campaigns.file_plans import key_of, plan_folder, plan_list
from hilum.services.campaigns.verbs import require_name
from hilum.services.sources import open_source
from hilum.settings import Settings
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from hilum.store.campaigns.rules import CannotRun
from hilum.store.queries.stored_series import StoredSelection

DEFAULT_MODALITIES: Final = ("CR", "DX")


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

    `request`: see `_parts`. It may be stopped at any moment and repeated. Raises CannotRun,
    SourceError, ListError, ValueError and ConfigurationError, each with the remedy.
    """
    require_name(name)
    known = campaigns.create(name, source, request)
    count = 0
    for part in _parts(settings, known):
        count += campaigns.add(known.id, part)
        note(PlanCounts(count, part.cursor))
    return campaigns.end_plan(name)


def digest_of_list(path: Path) -> str:
    """Return the SHA-256 of a list, by which a continued plan knows it again. Raises OSError."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _parts(settings: Settings, known: Campaign) -> Iterator[PlanPart]:
    """Yield the parts behind the cursor.

    The request of a PACS has `modalities`, and `dates` or `list`; of files `folder`; of pictures
    `list`; of the archive a selection.
    """
    request = known.request
    after = known.plan_cursor
    if known.source == ARCHIVE:
        return plan_archive(settings.ledger_url, _stored(request), after)
    if known.source == FILES:
        return plan_folder(settings, str(request["folder"]), after)
    if known.source == PICTURES:
        return plan_list(settings, request, after)
    return _from_pacs(settings, known)


def _from_pacs(settings: Settings, known: Campaign) -> Iterator[PlanPart]:
    section = settings.sources[known.source]
    request = known.request
    modalities: Sequence[str] = request["modalities"]
    with contextlib.closing(open_source(settings, known.source)) as source:
        if "dates" in request:
            first, last = map(date.fromisoformat, request["dates"])
            dates = DateRange(first, last)
            for step in plan_dates(source, section, dates, modalities, known.plan_cursor):
                yield _part(step, {})
            return
        listed = _unchanged_list(request)
        keys = _keys(settings, listed)
        if not known.plan_cursor:
            yield PlanPart("0", (), listed.doubts, listed.refused)
        for step in plan_rows(source, section, listed.studies, modalities, known.plan_cursor):
            yield _part(step, keys)


def _unchanged_list(request: Mapping[str, Any]) -> StudyList:
    """Return the list of a plan. Raises CannotRun for one that has changed since it began."""
    path = Path(request["list"])
    listed = read_list(path, request.get("column"))
    if digest_of_list(path) != request["list_sha256"]:
        raise CannotRun(f"{path} has changed since the plan began: plan it under another name")
    return listed


def _keys(settings: Settings, listed: StudyList) -> dict[int, str]:
    """Return the keyed digest of each row: the ledger has no column for identifiers."""
    salt = key_of(settings)
    return {row.number: row_key(row.value, salt) for row in listed.studies}


def _part(step: PlanStep, keys: Mapping[int, str]) -> PlanPart:
    series: list[tuple[PlannedSeries, Sequence[Any]]] = [(item, ()) for item in step.series]
    return PlanPart(step.cursor, series, step.doubts, step.rows, keys)


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
