"""rolling_restart: SIGTERM to `hilum serve` under load and a new start, as an upgrade does it.

And SIGTERM to single processes.
"""

from __future__ import annotations

import signal
import time

from load_tests.load.measure import Goal
from load_tests.proof.part import Found, Plan, pause
from load_tests.proof.street.street import START_SECONDS, Street, wait_for

_CHILDREN = ("listener", "dispatcher", "analyser", "api", "tritonserver")
_EXIT_SECONDS = 30.0  # design: SIGTERM, finish the instance in progress, exit within 30 s


def rolling_restart(plan: Plan, street: Street) -> Found:
    """Five restarts; the short form one."""
    street.begin()
    exits = [_restart(plan, street) for _ in range(int(plan.of(5, 1)))]
    for role in _CHILDREN[: int(plan.of(len(_CHILDREN), 2))]:
        plan.say(f"SIGTERM to the {role}")
        _terminate(street, role)
        pause(2.0)
    slowest = Goal("slowest exit", max(seconds for seconds, _ in exits), "s", _EXIT_SECONDS)
    failed = Goal(
        "exits with another status than 0", sum(status != 0 for _, status in exits), "exits", 0
    )
    return Found({"exit_seconds": [seconds for seconds, _ in exits]}, (slowest, failed))


def _restart(plan: Plan, street: Street) -> tuple[float, int]:
    """Seconds to exit, and the status."""
    plan.say("SIGTERM to hilum serve")
    pause(3.0)
    begin = time.monotonic()
    status = street.hilum.stop()
    seconds = round(time.monotonic() - begin, 1)
    street.start()
    street.fault()
    street.hilum.wait_until_ready(START_SECONDS)
    return seconds, status


def _terminate(street: Street, role: str) -> None:
    wait_for(lambda: street.pids(role), START_SECONDS, f"a {role}")
    street.signal(street.pids(role), signal.SIGTERM)
