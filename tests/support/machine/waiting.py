"""Waiting for what another process or thread does.

The times are nets, not measures: a busy machine may need them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

WAIT_SECONDS = 120.0
# Who looks all the time takes the CPU from what is waited for.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _GROWTH = 0.01, 0.1, 1.2

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T], seconds: float = WAIT_SECONDS, what: str = "condition"
) -> T:
    """The first true answer of `condition`. Fails the test after `seconds`."""
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE_SECONDS)
    return found


def has_ended(pid: int) -> bool:
    """Whether nothing of the process runs any more.

    A signal is sent before it is obeyed; a zombie only waits for its parent.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
