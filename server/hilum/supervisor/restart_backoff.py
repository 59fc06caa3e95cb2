"""The pause before the supervisor retries something that fails again and again."""

from __future__ import annotations

from typing import Final

_LONGEST_SECONDS: Final = 30.0
# enough for the maximum: two to the power of thousands of failures is no float
_DOUBLINGS: Final = 5


def pause_after(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row."""
    return min(_LONGEST_SECONDS, 2.0 ** min(failures, _DOUBLINGS))
