"""A campaign on a terminal of 80 columns: its progress, and its plan.

Pure: the commands print the views that these functions return. Import it late, because `rich`
takes a fifth of a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hilum.domain import (
    SERIES_REASONS,
    CampaignState,
    RowOutcome,
    SeriesReason,
    SeriesState,
)
from hilum.store.queries.campaigns import (
    CampaignProgress,
    Days,
    by_month,
    dashed,
    image_words,
    rate_words,
    series_words,
)

_DAY_LETTERS: Final = 8  # of YYYYMMDD
_MONTH_LETTERS: Final = 6
_MOST_LINES: Final = 24  # days, months or years that are listed one by one
_BAR: Final = 48
_SMALL_BAR: Final = 24
_MOST_DOUBTS: Final = 8
_MOST_REASONS: Final = 6
_STYLES: Final[Mapping[CampaignState, str]] = {
    CampaignState.RUNNING: "bold cyan",
    CampaignState.PAUSED: "bold yellow",
    CampaignState.FINISHED: "bold green",
}
_UNITS: Final = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


@dataclass(frozen=True, slots=True)
class Marks:
    """Characters of a bar: for series that are read, for dead ones, and for the rest."""

    read: str = "█"
    dead: str = "▒"
    rest: str = "░"


BLOCKS: Final = Marks()
ASCII: Final = Marks("#", "x", ".")


def status_view(
    found: CampaignProgress, ends_at: float | None, now: float, marks: Marks = BLOCKS
) -> RenderableType:
    """Return the progress of a campaign. `ends_at`: seconds since the epoch; None: not known.

    `marks`: ASCII for a terminal that cannot show blocks.
    """
    parts: list[RenderableType] = [
        _title(found),
        _whole_bar(found, marks),
        Text(),
        _facts(found, ends_at, now),
    ]
    if found.days:
        parts += [Text(), _days(found.days, marks)]
    parts += _reasons(found)
    parts += _doubts(found)
    return Group(*parts)


def plan_view(
    found: CampaignProgress, nights: int | None = None, marks: Marks = BLOCKS
) -> RenderableType:
    """Return the size of a plan, its days and its doubts, for the decision whether to run it.

    `nights`: how many it will take at the limits of its source; None: not known.
    """
    parts = _plan_head(found, nights)
    if found.days:
        parts += [Text(), _planned_days(found.days, marks)]
    parts += _doubts(found)
    return Group(*parts)


def _plan_head(found: CampaignProgress, nights: int | None) -> list[RenderableType]:
    known = [day for day in found.days if len(day) == _DAY_LETTERS]
    parts: list[RenderableType] = [_title(found), Text(_size(found, nights), style="bold")]
    if known:
        parts.append(Text(_span(known)))
    if found.rows:
        parts.append(Text(f"rows of the list: {_row_words(found.rows)}"))
    return parts


def _size(found: CampaignProgress, nights: int | None) -> str:
    counts = found.counts
    size = [_many(counts.studies, "study", "studies"), _many(counts.all_series, "series", "series")]
    if nights is not None:
        size.append(f"about {_many(nights, 'night', 'nights')}")
    return ", ".join(size)


def _span(days: Sequence[str]) -> str:
    first = dashed(min(days))
    last = dashed(max(days))
    count = _many(len(days), "day", "days")
    return f"{count}: {first}" if first == last else f"{count} from {first} to {last}"


def _title(found: CampaignProgress) -> Text:
    known = found.campaign
    text = Text(known.name, style="bold")
    text.append(f"  {known.state}", style=_STYLES.get(known.state, "bold"))
    text.append(f"  {known.source}", style="not bold")
    if known.release is not None:
        text.append(f", read by {known.release}", style="not bold")
    return text


def _whole_bar(found: CampaignProgress, marks: Marks) -> Text:
    counts = found.counts
    share = int(1000 * counts.ended_series / counts.all_series) / 10 if counts.all_series else 0.0
    text = _bar(counts.series, _BAR, marks)
    text.append(f"  {share:.1f} %", style="bold")
    text.append(f"  {counts.ended_series:,} of {counts.all_series:,} series")
    return text


def _bar(series: Mapping[SeriesState, int], width: int, marks: Marks) -> Text:
    """Return a bar of so many columns. One dead series takes a column; only all read fill it."""
    read_columns, dead_columns = _bar_columns(series, width)
    text = Text(marks.read * read_columns, style="cyan")
    text.append(marks.dead * dead_columns, style="red")
    text.append(marks.rest * (width - read_columns - dead_columns), style="dim")
    return text


def _bar_columns(series: Mapping[SeriesState, int], width: int) -> tuple[int, int]:
    planned = max(sum(series.values()), 1)
    dead = series.get(SeriesState.DEAD, 0)
    dead_columns = max(width * dead // planned, 1) if dead else 0
    return min(width * _read(series) // planned, width - dead_columns), dead_columns


def _facts(found: CampaignProgress, ends_at: float | None, now: float) -> Table:
    table = _columns()
    for name, words in _fact_words(found, ends_at, now):
        table.add_row(Text(name, style="dim"), Text(_shown(words)))
    return table


def _fact_words(
    found: CampaignProgress, ends_at: float | None, now: float
) -> Iterator[tuple[str, str]]:
    counts = found.counts
    yield "studies", f"{counts.studies:,}"
    yield "series", series_words(counts.series)
    yield "images", image_words(found)
    yield "rate", rate_words(found.recent)
    if found.campaign.state in (CampaignState.RUNNING, CampaignState.PAUSED):
        yield "end", _end_words(ends_at, now)
    yield from _other_words(found)


def _other_words(found: CampaignProgress) -> Iterator[tuple[str, str]]:
    if found.campaign.detail:
        yield "waits", found.campaign.detail
    if found.rows:
        yield "list", _row_words(found.rows)
    yield "reports", "are delivered" if found.campaign.options.delivers else "stay in Hilum"


def _row_words(rows: Mapping[RowOutcome, int]) -> str:
    return ", ".join(f"{number:,} {outcome}" for outcome, number in rows.items())


def _end_words(ends_at: float | None, now: float) -> str:
    if ends_at is None:
        return "not known"
    at = datetime.fromtimestamp(ends_at).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return f"in {_duration(max(ends_at - now, 0.0))}, {at}"


def _days(days: Days, marks: Marks) -> Table:
    """Return a line for each day, or for each month or year where there are many."""
    table = _day_columns()
    for label, series in _periods(days).items():
        dead = series.get(SeriesState.DEAD, 0)
        table.add_row(
            _label(label),
            _bar(series, _SMALL_BAR, marks),
            Text(f"{_read(series):,} of {sum(series.values()):,} read"),
            Text(f"{dead:,} dead" if dead else ""),
        )
    return table


def _planned_days(days: Days, marks: Marks) -> Table:
    """Return a line for each period of a plan; the longest bar is the largest period."""
    periods = {label: sum(series.values()) for label, series in _periods(days).items()}
    largest = max(periods.values())
    table = _day_columns()
    for label, number in periods.items():
        bar = marks.read * max(_SMALL_BAR * number // largest, 1)
        words = Text(_many(number, "series", "series"))
        table.add_row(_label(label), Text(bar.ljust(_SMALL_BAR), style="cyan"), words)
    return table


def _day_columns() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="red")
    return table


def _label(period: str) -> Text:
    return Text(dashed(period) or "no date")


def _read(series: Mapping[SeriesState, int]) -> int:
    return series.get(SeriesState.READ, 0) + series.get(SeriesState.NOTHING_TO_READ, 0)


def _periods(days: Days) -> Days:
    """Return days, months or years: the finest of which few enough lines tell. "" comes last."""
    found = _few(days)
    return {key: found[key] for key in sorted(found, key=lambda key: (not key, key))}


def _few(days: Days) -> Days:
    if len(days) <= _MOST_LINES:
        return days
    months = by_month(days)
    if len(months) <= _MOST_LINES:
        return months
    years: dict[str, dict[SeriesState, int]] = {}
    for month, series in months.items():
        year = years.setdefault(month[:4], {})
        for state, number in series.items():
            year[state] = year.get(state, 0) + number
    return years


def _reasons(found: CampaignProgress) -> list[RenderableType]:
    table = _columns()
    for name, reasons in (
        ("dead", found.dead),
        ("missing", found.missing),
        ("not read", found.not_read),
    ):
        for at, words in enumerate(_reason_lines(reasons)):
            table.add_row(Text("" if at else name, style="dim"), Text(_shown(words)))
    return [Text(), table] if table.row_count else []


def _reason_lines(reasons: Mapping[str, int]) -> Iterator[str]:
    """Yield the most frequent reasons, and how many others there are."""
    items = list(reasons.items())
    for reason, number in items[:_MOST_REASONS]:
        words = f"{number:,} {_plain(reason)}"
        if reason in frozenset(SeriesReason):
            words += f": {SERIES_REASONS[SeriesReason(reason)]}"
        yield words
    if len(items) > _MOST_REASONS:
        yield f"{sum(number for _, number in items[_MOST_REASONS:]):,} for other reasons"


def _doubts(found: CampaignProgress) -> list[RenderableType]:
    doubts = found.campaign.doubts
    if not doubts:
        return []
    lines = [
        _shown(f"{dashed(item.day)}: {item.text}" if item.day else item.text)
        for item in doubts[:_MOST_DOUBTS]
    ]
    if len(doubts) > _MOST_DOUBTS:
        lines.append(f"and {len(doubts) - _MOST_DOUBTS:,} more")
    return [Text(), Text("The plan may be incomplete:", style="yellow"), *_indented(lines)]


def _indented(lines: Sequence[str]) -> list[RenderableType]:
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row(Text(" -"), Text(line))
    return [table]


def _columns() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    return table


def _shown(text: str) -> str:
    """Without control characters: a source's own words must not move the cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _plain(word: str) -> str:
    return word.replace("_", " ")


def _many(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _duration(seconds: float) -> str:
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return _many(int(seconds // size), unit, f"{unit}s")
