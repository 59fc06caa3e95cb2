"""A run of `make bench-cpu` as a table for a person and as JSON with its history."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load_tests.bench.cpu_stages import (
    Row,
    Window,
    by_stage,
    everything_else,
    outside_model,
    summed,
)
from load_tests.load.measure import Goal

_HISTORY = 50
_OUTSIDE_GOALS = {"10 MB": 14.0, "0.5 MB": 4.5}
_ELSE_GOAL = 4.0
_IDLE_GOAL = 0.01
# 80 in all
_LABEL = 20
_COLUMN = 9
_IDLE_COLUMN = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """A run.

    "10 MB" are images of this size at the usual rate, "10 MB 8/s" those at another, "10 MB flat
    out" those at saturation.
    """

    idle: Window
    rows: Mapping[str, Sequence[Row]]
    loads: Mapping[str, Window]
    release: str = ""
    about_precision: Mapping[str, Any] = field(default_factory=dict)


def goals(measured: Measured) -> list[Goal]:
    """Those of the issue."""
    found = []
    for condition, rows in measured.rows.items():
        stages = by_stage(rows)
        size, load = _parts(condition)
        image = f"{size} image {load}".rstrip()
        found += [
            Goal(
                f"CPU outside the model, {image}", outside_model(stages), "ms", _OUTSIDE_GOALS[size]
            ),
            Goal(
                f"all but receive, decode, prepare, model, {condition}",
                everything_else(stages),
                "ms",
                _ELSE_GOAL,
            ),
        ]
    return [*found, Goal("idle Hilum", measured.idle.cores(), "cores", _IDLE_GOAL)]


def _parts(condition: str) -> tuple[str, str]:
    """Size and load of "10 MB 8/s"."""
    size = next(size for size in _OUTSIDE_GOALS if condition.startswith(size))
    return size, condition.removeprefix(size).strip()


def show(measured: Measured) -> None:
    """For a person, 80 columns at most."""
    print("\n".join(lines(measured)))


def lines(measured: Measured) -> Iterator[str]:
    """By stage, by process, and the goals."""
    sizes, loads = zip(*map(_parts, measured.rows), strict=True)
    yield ""
    yield _heading("ms of CPU per image", sizes)
    yield _heading("", loads)
    tables = [by_stage(rows) for rows in measured.rows.values()]
    yield from (_line(stage, [table[stage] for table in tables]) for stage in tables[0])
    yield _line("outside the model", [outside_model(table) for table in tables])
    yield _line("all", [sum(table.values()) for table in tables])
    yield _line(
        "sender and PACS", [1000 * load.generator / load.images for load in measured.loads.values()]
    )
    yield ""
    yield _heading("by process", sizes) + f"{'idle':>{_IDLE_COLUMN}}"
    yield _heading("(idle: % of a core)", loads)
    by_role = [summed(rows, lambda row: row.role) for rows in measured.rows.values()]
    for role in sorted({role for table in by_role for role in table}):
        idle = 100 * measured.idle.roles.get(role, 0.0) / measured.idle.seconds
        yield _line(role, [table.get(role, 0.0) for table in by_role]) + f"{idle:{_IDLE_COLUMN}.2f}"
    yield ""
    for goal in goals(measured):
        yield (
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.3g} {goal.unit} (<="
            f" {goal.goal:g})"
        )


def _heading(name: str, columns: Sequence[str]) -> str:
    return f"{name:{_LABEL}}" + "".join(f"{column:>{_COLUMN}}" for column in columns)


def _line(name: str, values: Sequence[float]) -> str:
    return f"{name:{_LABEL}}" + "".join(f"{value:{_COLUMN}.2f}" for value in values)


def record(
    path: Path, measured: Measured, around: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Write the run; the one before it goes into the history."""
    content = {
        "what": (
            "CPU by stage and process, milliseconds per image; idle polling is that of an idle"
            " Hilum in the same time"
        ),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "release": measured.release,
        **measured.about_precision,
        **around,
        "settings": {
            name: value for name, value in settings.items() if not isinstance(value, Path)
        },
        "idle_cores": {
            role: round(seconds / measured.idle.seconds, 5)
            for role, seconds in measured.idle.roles.items()
        },
        "milliseconds_per_image": {
            size: _rounded(by_stage(rows)) for size, rows in measured.rows.items()
        },
        "charged": {size: _rounded(_charged(load)) for size, load in measured.loads.items()},
        "sender_and_pacs": {
            size: round(1000 * load.generator / load.images, 3)
            for size, load in measured.loads.items()
        },
        "by_process": {size: _of_processes(rows) for size, rows in measured.rows.items()},
        "seconds": {size: round(load.seconds, 1) for size, load in measured.loads.items()},
        "batches": {
            size: {str(edge): count for edge, count in load.batches.items() if count}
            for size, load in measured.loads.items()
        },
        "goals": [goal.as_json() for goal in goals(measured)],
        "history": _history(path),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _charged(load: Window) -> dict[str, float]:
    """hilum_cpu_seconds_total as it is, idle polling included.

    The ledger's share by the stage that asks.
    """
    return {label: 1000 * seconds / load.images for label, seconds in load.charged.items()}


def _of_processes(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    return {
        role: _rounded({row.stage: row.milliseconds for row in rows if row.role == role})
        for role in sorted({row.role for row in rows})
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def _history(path: Path) -> list[dict[str, Any]]:
    """Earlier runs in short, the oldest first."""
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    kept = {
        name: earlier[name]
        for name in ("measured_at", "commit", "is_modified", "milliseconds_per_image")
    }
    short = kept | {"idle_cores": round(sum(earlier["idle_cores"].values()), 5)}
    return [*earlier["history"], short][-_HISTORY:]
