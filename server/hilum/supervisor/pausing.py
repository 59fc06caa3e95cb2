"""How long the supervisor leaves alone what has ended, or could not begin, again and again."""

from __future__ import annotations

from typing import Final

_LONGEST_SECONDS: Final = 30.0
_DOUBLINGS: Final = 5  # to that: two to the power of thousands of failures is no float


def pause_after(failures: int) -> float:
    """Seconds, after so many failures in a row."""
    return min(_LONGEST_SECONDS, 2.0 ** min(failures, _DOUBLINGS))
