"""Waiting for what another process or thread does. The times are nets, not measures: a busy machine may need them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_SECONDS = 120.0

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = WAIT_SECONDS, what: str = "condition") -> T:
    """The first true answer of `condition`. Fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.02)
    return found
