"""The values of the pages on campaigns, from rows of the ledger. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hilum.api.pages.campaigns.day_grid import DayGrid, day_grid, grid_words
from hilum.api.pages.destination_boxes import ButtonAction
from hilum.api.pages.formatting import Chip, Moment, Tone, count, meaning, moment, plain
from hilum.domain import (
    ARCHIVE,
    FILES,
    PICTURES,
    SERIES_REASONS,
    Campaign,
    CampaignCounts,
    CampaignState,
    RowOutcome,
    SeriesReason,
    SeriesState,
)
from hilum.store.queries.campaigns import (
    CampaignOverview,
    CampaignProgress,
    dashed,
    image_words,
    rate_words,
    series_words,
)

Item = Mapping[str, Any]
_TONES: Final[Mapping[CampaignState, Tone]] = {
    CampaignState.RUNNING: "busy",
    CampaignState.PAUSED: "warn",
    CampaignState.FINISHED: "good",
}
_NEXT: Final[Mapping[CampaignState, str]] = {
    CampaignState.PLANNING: "hilum campaign plan",
    CampaignState.PLANNED: "hilum campaign run",
    CampaignState.RUNNING: "hilum campaign pause",
    CampaignState.PAUSED: "hilum campaign resume",
}
_CANCEL: Final = ButtonAction(
    "cancel",
    "Cancel",
    "Nothing more is fetched.",
    "End this campaign. Images that were received are read. It cannot be undone.",
)
_PAUSE: Final = ButtonAction("pause", "Pause", "Nothing is fetched until you resume it.")
_RESUME: Final = ButtonAction("resume", "Resume", "It fetches again.")
_ACTIONS: Final[Mapping[CampaignState, tuple[ButtonAction, ...]]] = {
    CampaignState.PLANNING: (_CANCEL,),
    CampaignState.PLANNED: (_CANCEL,),
    CampaignState.RUNNING: (_PAUSE, _CANCEL),
    CampaignState.PAUSED: (_RESUME, _CANCEL),
}
_RETRIED: Final = (CampaignState.RUNNING, CampaignState.PAUSED, CampaignState.FINISHED)
_ROWS: Final[Mapping[RowOutcome, str]] = {
    RowOutcome.FOUND: "name one study",
    RowOutcome.NONE: "name no study of the source",
    RowOutcome.AMBIGUOUS: "name several studies",
    RowOutcome.REFUSED: "are refused: no identifier",
    RowOutcome.DUPLICATE: "repeat another row",
}
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ProgressBar:
    """Shares of a hundred. `ended`: read or dead, `dead` among them. `words`: the same as text."""

    ended: float
    dead: float
    words: str


@dataclass(frozen=True, slots=True)
class CampaignLine:
    """A row of the list."""

    name: str
    source: str
    release: str
    chip: Chip
    bar: ProgressBar
    studies: str
    dead: str
    changed: Moment | None


@dataclass(frozen=True, slots=True)
class ReasonLine:
    """A reason and how often. `name`: the closed word; `words`: its sentence."""

    name: str
    words: str
    number: int


@dataclass(frozen=True, slots=True)
class DeadSeries:
    """One dead series."""

    study: str
    series: str
    day: str
    origin: str
    reason: str
    words: str
    attempts: str
    ended: Moment | None


@dataclass(frozen=True, slots=True)
class CampaignBox:
    """One campaign.

    `command`: the next verb of a person; empty: there is none. `actions`: those of its buttons.
    """

    line: CampaignLine
    detail: str
    facts: Sequence[tuple[str, str]]
    doubts: Sequence[str]
    rows: Sequence[ReasonLine]
    grid: DayGrid
    days: str
    dead: Sequence[ReasonLine]
    missing: Sequence[ReasonLine]
    not_read: Sequence[ReasonLine]
    command: str
    actions: Sequence[ButtonAction]


def campaign_line(found: CampaignOverview, now: float) -> CampaignLine:
    """Return the row of a campaign."""
    known = found.campaign
    dead = found.counts.series.get(SeriesState.DEAD, 0)
    return CampaignLine(
        known.name,
        known.source,
        known.release or "",
        Chip(plain(known.state), _TONES.get(known.state, "quiet")),
        progress_bar(found.counts),
        _many(found.counts.studies, "study", "studies"),
        f"{dead:,} dead" if dead else "",
        moment(known.changed_at, now),
    )


def progress_bar(counts: CampaignCounts) -> ProgressBar:
    """Return how many series have ended. A share below all is never shown as all."""
    planned = counts.all_series
    ended = counts.ended_series
    dead = counts.series.get(SeriesState.DEAD, 0)
    if not planned:
        return ProgressBar(0.0, 0.0, "no series yet")
    share = int(1000 * ended / planned) / 10
    words = f"{share:.1f} %: {ended:,} of {planned:,} series ended"
    return ProgressBar(share, round(100 * dead / planned, 2), words)


def campaign_box(found: CampaignProgress, ends_at: float | None, now: float) -> CampaignBox:
    """Return everything about a campaign but its dead series."""
    known = found.campaign
    grid = day_grid(found.days)
    verb = _NEXT.get(known.state, "hilum campaign retry" if found.dead else "")
    return CampaignBox(
        line=campaign_line(found, now),
        detail=known.detail,
        facts=_facts(found, ends_at, now),
        doubts=[_doubt(item.text, item.day) for item in known.doubts],
        rows=[ReasonLine(plain(key), _ROWS[key], number) for key, number in found.rows.items()],
        grid=grid,
        days=grid_words(grid),
        dead=_reasons(found.dead),
        missing=_reasons(found.missing),
        not_read=_reasons(found.not_read),
        command=f"{verb} {known.name}" if verb else "",
        actions=_actions(found),
    )


def _actions(found: CampaignProgress) -> tuple[ButtonAction, ...]:
    """Return the buttons of verbs that the ledger accepts."""
    state = found.campaign.state
    dead = found.counts.series.get(SeriesState.DEAD, 0)
    actions = _ACTIONS.get(state, ())
    if not dead or state not in _RETRIED:
        return actions
    words = f"{_many(dead, 'series is', 'series are')} fetched again."
    return (ButtonAction("retry", "Retry dead series", words), *actions)


def dead_line(item: Item, now: float) -> DeadSeries:
    """Return the row of a dead series."""
    tries = count(item["attempts"], "request")
    words = " ".join(part for part in (_sentence(item["reason"]), item["detail"]) if part)
    return DeadSeries(
        item["study_instance_uid"],
        item["series_instance_uid"],
        " ".join(part for part in (item["day"], item["modality"]) if part),
        item["origin"],
        plain(item["reason"]),
        words,
        tries,
        moment(item["finished_at"], now),
    )


def _facts(found: CampaignProgress, ends_at: float | None, now: float) -> list[tuple[str, str]]:
    known = found.campaign
    counts = found.counts
    facts = [
        ("Studies", f"{counts.studies:,}"),
        ("Series", series_words(counts.series)),
        ("Images", image_words(found)),
        ("Rate", rate_words(found.recent)),
        ("Expected end", _end(known.state, ends_at, now)),
        ("Hours", _hours(known)),
        ("Reports", "go to the destinations" if known.options.delivers else "stay in Hilum"),
        ("In the archive", f"{counts.bytes_kept / _MIB:,.0f} MiB of its images"),
    ]
    return facts + _moments(known, now)


def _moments(known: Campaign, now: float) -> list[tuple[str, str]]:
    said = (("Began", moment(known.started_at, now)), ("Ended", moment(known.finished_at, now)))
    return [(name, f"{item.age}, {item.local}") for name, item in said if item is not None]


def _hours(known: Campaign) -> str:
    if known.options.hours:
        return ", ".join(known.options.hours)
    is_built_in = known.source in (ARCHIVE, FILES, PICTURES)
    return "at any time" if is_built_in or known.options.hours == () else "those of its source"


def _end(state: CampaignState, ends_at: float | None, now: float) -> str:
    if state in (CampaignState.FINISHED, CampaignState.CANCELLED):
        return "it is over"
    found = moment(ends_at, now)
    return "not known" if found is None else f"{found.age}, {found.local}"


def _doubt(text: str, day: str) -> str:
    return f"{dashed(day)}: {text}" if day else text


def _reasons(found: Mapping[str, int]) -> list[ReasonLine]:
    return [ReasonLine(plain(name), _sentence(name), number) for name, number in found.items()]


def _sentence(reason: str | None) -> str:
    if reason in frozenset(SeriesReason):
        return SERIES_REASONS[SeriesReason(reason)]
    return meaning(reason)


def _many(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"
