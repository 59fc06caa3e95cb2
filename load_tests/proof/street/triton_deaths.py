"""triton: tritonserver and its stub are killed again and again, and the stub stands still for longer than the deadline."""

from __future__ import annotations

import signal

from load_tests.proof.part import Found, Plan, pause
from load_tests.proof.street.street import Street, wait_for

DEADLINE_SECONDS = 2.0
_STUB = "triton-stub"
_SERVER = "tritonserver"
_BACK_SECONDS = 120.0


def triton_deaths(plan: Plan, street: Street) -> Found:
    """Ten rounds; the short form one."""
    rounds = int(plan.of(10, 1))
    street.begin()
    for number in range(rounds):
        plan.say(f"round {number + 1} of {rounds}: the stub, the server, a stub that stands still")
        for role in (_STUB, _SERVER, _STUB):
            _kill(street, role)
        _hold_still(street)
    return Found({"rounds": rounds, "deadline_seconds": DEADLINE_SECONDS})


def _kill(street: Street, role: str) -> None:
    wait_for(lambda: street.pids(role), _BACK_SECONDS, f"a {role} to kill")
    street.signal(street.pids(role))
    pause(2.0)


def _hold_still(street: Street) -> None:
    wait_for(lambda: street.pids(_STUB), _BACK_SECONDS, "a stub to stop")
    stubs = street.pids(_STUB)
    street.signal(stubs, signal.SIGSTOP)
    pause(2.5 * DEADLINE_SECONDS)
    street.signal(stubs, signal.SIGCONT)
    pause(2.0)
