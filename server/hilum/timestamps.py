"""Moments: which of an item's timings are some, and how they are written."""

from __future__ import annotations

from datetime import UTC, datetime


def is_moment(timing: str) -> bool:
    """Of timings by name: those that end in `_at` or `_until` are seconds since the epoch.

    The others are durations and counts.
    """
    return timing.endswith(("_at", "_until"))


def iso(moment: float, timespec: str = "milliseconds") -> str:
    """Return seconds since the epoch as ISO 8601 in UTC, to the millisecond by default.

    `2026-11-20T08:31:02.120Z`.
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
