"""Remedies for deletion that waits: the same in the log and in `hilum check`."""

from __future__ import annotations

from typing import Final

CLOCK_AHEAD: Final = (
    "what is deleted by age goes by the known time, which lies behind the clock. If the clock is"
    " wrong, set it (NTP). If the server was off for so long, say which day it is: hilum retention"
    " confirm-clock YYYY-MM-DD"
)
CLOCK_BEHIND: Final = (
    "the clock was set back, or the known time comes of a clock that was wrong. Set the clock"
    " (NTP), then say which day it is: hilum retention confirm-clock YYYY-MM-DD"
)
HOUR_SPENT: Final = (
    "the rest waits for the next hour. Look whether retention.days is meant so; to delete faster,"
    " raise retention.hourly_share"
)
