"""Whether a source that does not answer is down, or one series is odd."""

from __future__ import annotations

from typing import Final

_COUNTED_EVERY: Final = 10


class OutageRule:
    """Trouble behind an accepted association is an outage from the second series in a row on.

    So one odd series uses up its own attempts, and a source that is down does not use up those of
    all. Each tenth trouble in a row counts for its series, so that each campaign ends.
    """

    def __init__(self) -> None:
        self._troubled: set[str] = set()
        self._in_a_row = 0

    def succeed(self) -> None:
        """Note an answer."""
        self._troubled.clear()
        self._in_a_row = 0

    def is_outage(self, subject: str) -> bool:
        """Note trouble with a series or a query; return whether it counts as an outage."""
        self._troubled.add(subject)
        self._in_a_row += 1
        return len(self._troubled) > 1 and self._in_a_row % _COUNTED_EVERY != 0
