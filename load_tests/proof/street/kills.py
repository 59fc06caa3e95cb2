"""kills: kill -9 of processes chosen at random, at random moments, sometimes two at once, while studies come in."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping

from load_tests.proof.part import Found, Plan, pause
from load_tests.proof.street.street import START_SECONDS, Street, wait_for

_SUPERVISOR = "supervisor"
# Children before their parents, so that none has to be waited for.
ROLES = (
    "decode",
    "report",
    "triton-stub",
    "tritonserver",
    "listener",
    "api",
    "analyser",
    "dispatcher",
)
# The supervisor takes all others along, so it dies less often than they do.
_SUPERVISOR_SHARE = 0.1
_ONE_SUPERVISOR_IN = 12
_TWO_AT_ONCE_SHARE = 0.2
_SHORTEST_SECONDS = 0.1
_LONGEST_SECONDS = 1.0
_TOLD_EVERY = 20
_IMAGES_BETWEEN_KILLS = 2
_PATIENCE_SECONDS = 10.0


def kills(plan: Plan, street: Street) -> Found:
    """200 kills; the short form 9. Each role once, in order, then what the dice say."""
    wanted = int(plan.of(200, 9))
    chance = plan.random
    street.begin()
    killed = Counter(_kill_each(street, chance))
    while (done := killed.total()) < wanted:
        _await_load(street)
        pause(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS))
        may_supervisor = killed[_SUPERVISOR] < wanted // _ONE_SUPERVISOR_IN
        killed.update(_kill(street, chance, may_supervisor=may_supervisor))
        if done // _TOLD_EVERY != killed.total() // _TOLD_EVERY:
            plan.say(
                f"{killed.total()} kills, {len(street.router.books.acknowledged)} images"
                " acknowledged"
            )
    return Found({"kills": dict(sorted(killed.items()))})


def _await_load(street: Street) -> None:
    """Until images are taken again.

    Kills in a row only prolong the pauses of the supervisor, and then nothing is under load.
    """
    acknowledged = len(street.router.books.acknowledged)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (
        len(street.router.books.acknowledged) < acknowledged + _IMAGES_BETWEEN_KILLS
        and time.monotonic() < deadline
    ):
        street.tend()
        pause(0.1)


def _kill_each(street: Street, chance: random.Random) -> tuple[str, ...]:
    for role in ROLES:
        pause(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS))
        _kill_one(street, role)
    return ROLES


def _kill_one(street: Street, role: str) -> None:
    wait_for(lambda: street.pids(role), START_SECONDS, f"a {role} to kill")
    street.signal(street.pids(role)[:1])


def _kill(street: Street, chance: random.Random, *, may_supervisor: bool) -> list[str]:
    """One or two processes; their roles."""
    if chance.random() < _SUPERVISOR_SHARE and may_supervisor:
        street.kill_supervisor()
        return [_SUPERVISOR]
    street.tend()
    living = {pid: role for pid, role in street.roles().items() if role in ROLES}
    victims = _victims(living, chance, 2 if chance.random() < _TWO_AT_ONCE_SHARE else 1)
    street.signal(list(victims))
    return list(victims.values())


def _victims(living: Mapping[int, str], chance: random.Random, count: int) -> dict[int, str]:
    """Roles with equal chances, however many processes each has now; process id to role."""
    roles = sorted(set(living.values()))
    chosen = chance.sample(roles, min(count, len(roles)))
    return {
        chance.choice([pid for pid, its in living.items() if its == role]): role for role in chosen
    }
