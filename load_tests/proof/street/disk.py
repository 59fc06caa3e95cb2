"""disk_full and ledger_full: a small file system is filled to the last byte and freed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from load_tests.load.measure import Goal
from load_tests.proof.part import Found, Plan, pause
from load_tests.proof.router import Load
from load_tests.proof.small_disk import fill, free, keep_full
from load_tests.proof.street.street import Street

_MIB = 1 << 20
_RESERVE_BYTES = 4 * _MIB
_REJECT_BYTES = 8 * _MIB

# Who is inside is answered 0xA700, who comes is rejected: so some must be inside when the room
# goes, and some must come later.
LOAD = Load(studies_per_association=4)
STATE = ("state", 256)
LEDGER = ("ledger", 64)


def state_settings(_: Path) -> Mapping[str, Mapping[str, Any]]:
    """Watermarks that a small disk can reach."""
    return {"receive": {"reserve_bytes": _RESERVE_BYTES, "reject_bytes": _REJECT_BYTES}}


def ledger_settings(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The ledger in a folder of its own."""
    return {"ledger": {"url": f"sqlite:///{folder / LEDGER[0]}/ledger.sqlite"}}


def disk_full(plan: Plan, street: Street) -> Found:
    """The whole state folder: first less than the reserve, then more than that but little, then nothing at all."""
    street.begin()
    disk = street.folder / STATE[0]
    seconds = plan.of(20, 4)
    for room in (_RESERVE_BYTES - _MIB, _REJECT_BYTES - _MIB):
        plan.say(f"{room // _MIB} MiB are left")
        fill(disk, room)
        pause(seconds)
    plan.say("nothing is left")
    keep_full(disk, seconds)
    free(disk)
    street.fault()
    refused = [
        _pushed_back(street, answer) for answer in ("0xA700", "association rejected (2,3,2)")
    ]
    return Found({"seconds_full": seconds}, tuple(refused))


def _pushed_back(street: Street, answer: str) -> Goal:
    """Back-pressure that the sender sees."""
    return Goal(
        f"answers {answer}", street.router.books.answers[answer], "answers", 1, at_most=False
    )


def ledger_full(plan: Plan, street: Street) -> Found:
    """The ledger's file system is full, while the archive has room."""
    street.begin()
    disk = street.folder / LEDGER[0]
    before = len(street.router.books.acknowledged)
    plan.say("the ledger's file system is full")
    keep_full(disk, plan.of(75, 6))
    meanwhile = len(street.router.books.acknowledged) - before
    free(disk)
    street.fault()
    return Found({"images_acknowledged_meanwhile": meanwhile})
