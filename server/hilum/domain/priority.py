"""The order in which work is done."""

from __future__ import annotations

from enum import IntEnum


class Priority(IntEnum):
    """Priority from the door to the engine; a smaller number goes first."""

    URGENT = 0
    LIVE = 1
    REANALYSIS = 2
