"""What every part of the proof is given, and what it hands back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load_tests.load.measure import Goal
from load_tests.proof.resources import growth
from load_tests.proof.router import Load
from load_tests.proof.small_disk import may_mount, small_disk
from load_tests.proof.street.street import NotQuiet, Street
from testing.serving import HilumEnded
from testing.tiny_release import Tiny


@dataclass(frozen=True, slots=True)
class Plan:
    """Where to work, with what, how hard: `is_short` means seconds instead of minutes.

    `say` takes progress.
    """

    folder: Path
    tiny: Tiny
    seed: int
    is_short: bool
    say: Callable[[str], None] = print

    @property
    def random(self) -> random.Random:
        """The same choices for the same seed."""
        return random.Random(self.seed)

    def of(self, full: float, short: float) -> float:
        """How many, or for how long."""
        return short if self.is_short else full


@dataclass(frozen=True, slots=True)
class Found:
    """What a fault adds to the figures and goals that every part has."""

    figures: Mapping[str, Any] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """`fault` disturbs a street under load.

    `disk`: a folder of it, and of how many MiB its own file system is; that needs root.
    """

    fault: Callable[[Plan, Street], Found]
    settings: Callable[[Path], Mapping[str, Mapping[str, Any]]] = lambda _: {}
    load: Load = field(default_factory=Load)
    timeout_seconds: float = 20.0
    disk: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A part's figures and goals.

    `problems`: examples of what is wrong. `left_out`: why the part could not run here.
    """

    figures: Mapping[str, Any] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()
    problems: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def holds(self) -> bool:
        """Whether every goal is kept."""
        return all(goal.holds for goal in self.goals)


def outcome_of(part: Part, plan: Plan) -> Outcome:
    """Build the street, disturb it, judge.

    A street that does not come up, or not back, breaks a goal and not the proof.
    """
    if part.disk is not None and not may_mount():
        return Outcome(left_out="needs the right to mount a file system; run it as root")
    with ExitStack() as stack:
        try:
            if part.disk is not None:
                stack.enter_context(small_disk(plan.folder / part.disk[0], part.disk[1]))
            sections = part.settings(plan.folder)
            street = Street(
                plan.folder,
                plan.tiny,
                part.load,
                seed=plan.seed,
                timeout_seconds=part.timeout_seconds,
                **sections,
            )
            return conclude(plan, stack.enter_context(street), part.fault(plan, street))
        except (NotQuiet, HilumEnded) as error:
            return Outcome(goals=(_unrest(1),), problems=(str(error),))


def conclude(plan: Plan, street: Street, *found: Found) -> Outcome:
    """Drain and judge; the figures that every part has, and those of its faults."""
    plan.say("the faults are over; draining")
    recovery, unrest = _drained(street)
    verdict = street.verdict()
    figures = {name: value for each in found for name, value in each.figures.items()} | _figures(
        street, recovery
    )
    goals = (
        *verdict.goals(),
        _unrest(len(unrest)),
        *(goal for each in found for goal in each.goals),
    )
    return Outcome(
        {**figures, "repeated_reports": verdict.repeated}, goals, (*unrest, *verdict.examples())
    )


def _figures(street: Street, recovery: float | None) -> dict[str, Any]:
    after = street.sizes()
    books = street.router.books
    return {
        "studies": street.router.begun,
        "images_acknowledged": len(books.acknowledged),
        "answers": dict(books.answers),
        "seconds_from_last_fault_to_quiet": recovery,
        "starts_of_hilum_serve": street.starts,
        "unasked_ends_of_hilum_serve": street.unasked_ends,
        "size_before": street.before,
        "size_after": after,
        "growth_mib": growth(street.before, after),
    }


def _drained(street: Street) -> tuple[float | None, list[str]]:
    """Seconds from the last fault to rest.

    Where there is no rest, what is unfinished, and the verdict counts it anyway.
    """
    try:
        return street.drain(), []
    except NotQuiet as error:
        return None, [str(error)]


def _unrest(count: int) -> Goal:
    return Goal("streets that did not come to rest", count, "streets", 0)


def pause(seconds: float) -> None:
    """Load goes on meanwhile."""
    time.sleep(seconds)
