"""power: the machine of two loaded listeners loses its power, again and again.

When it is back, what was acknowledged is there.

Archive and ledger lie on a file system of their own, whose journal is ended at a random moment:
what was not on its disk by then is gone, as after a power cut, but for what the disk itself holds
in a cache and was not told to write.
Listeners stand still from that moment on.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from load_tests.load.measure import Goal
from load_tests.proof.listeners.audit import Auditor, add_goals
from load_tests.proof.listeners.processes import Listeners
from load_tests.proof.listeners.senders import Outbox, Senders, drawn
from load_tests.proof.part import Outcome, Plan, pause
from load_tests.proof.power_disk import PowerDisk, kinds
from load_tests.proof.small_disk import may_mount
from load_tests.proof.street.street import NotQuiet
from testing.phantoms.encoded import Template

_CUTS = 200
_SHORT_CUTS = 6
_CUTS_A_ROUND = 10  # then a new disk
_DISK_MIB = 2048
_PROCESSES = 2
_SHORTEST_SECONDS = 0.1
_LONGEST_SECONDS = 1.0
_SHOWN = 10
_SIDES = (64, 64, 64, 128, 128, 256, 768, 1600)  # pixels: one of 5 MB
WAYS: Final[Mapping[str, Mapping[str, object]]] = {
    "auto": {},
    "strict": {"durability": "strict"},
}
"""Settings of `receive`, by their name."""


@dataclass(slots=True)
class Tally:
    """What all rounds together came to; `cuts` by file system and way."""

    cuts: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    goals: dict[str, Goal] = field(default_factory=dict)
    restless: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, kept: int, outbox: Outbox, auditor: Auditor) -> None:
        """One round."""
        self.figures["objects_acknowledged"] += len(outbox.objects.acknowledged)
        self.figures["objects_in_the_ledger"] += kept
        self.figures["half_received_at_a_cut"] += auditor.left.half_received
        self.figures["without_their_place_at_a_cut"] += auditor.left.without_place
        add_goals(self.goals, auditor.broken.goals())
        self.problems += [line[:300] for line in auditor.broken.examples()]

    def outcome(self, wanted: int) -> Outcome:
        """With the count of cuts as a goal."""
        figures: dict[str, Any] = {"cuts": dict(sorted(self.cuts.items())), **self.figures}
        made = Goal("cuts at random moments", self.cuts.total(), "cuts", wanted, at_most=False)
        rest = Goal("rounds that did not come to rest", self.restless, "rounds", 0)
        return Outcome(figures, (made, *self.goals.values(), rest), tuple(self.problems[:_SHOWN]))


def power(plan: Plan) -> Outcome:
    """200 cuts and more; the short form 6."""
    if not may_mount():
        return Outcome(left_out="needs the right to mount a file system; run it as root")
    if shutil.which("storescu") is None or kinds() != ["ext4", "xfs"]:
        return Outcome(left_out="needs DCMTK's storescu, mkfs.ext4 and mkfs.xfs")
    return cut_power(plan.folder, plan.seed, int(plan.of(_CUTS, _SHORT_CUTS)), plan.say)


def cut_power(folder: Path, seed: int, wanted: int, say: Callable[[str], None]) -> Outcome:
    """So many cuts at least, as many of each file system and each way."""
    chance = random.Random(seed)
    tally = Tally()
    templates = drawn(_SIDES)
    conditions = [(kind, way) for kind in kinds() for way in WAYS]
    share = -(-wanted // len(conditions))
    for number, (kind, way) in enumerate(conditions):
        condition = _condition(kind, way)
        while tally.cuts[condition] < share and not tally.problems:
            until = min(share, tally.cuts[condition] + _CUTS_A_ROUND)
            try:
                _round(
                    folder / f"{kind}-{number}-{tally.cuts[condition]}",
                    kind,
                    way,
                    chance,
                    tally,
                    templates,
                    until,
                )
            except NotQuiet as error:
                tally.restless += 1
                tally.problems.append(str(error))
            say(
                f"{condition}: {tally.cuts[condition]} cuts,"
                f" {tally.figures['objects_acknowledged']} objects acknowledged in all"
            )
    return tally.outcome(wanted)


def _condition(kind: str, way: str) -> str:
    return f"{kind}, {way}"


def _round(
    folder: Path,
    kind: str,
    way: str,
    chance: random.Random,
    tally: Tally,
    templates: Sequence[Template],
    until: int,
) -> None:
    """A disk of its own; deleted when nothing was wrong with it."""
    condition = _condition(kind, way)
    outbox = Outbox(folder / "out", templates, random.Random(chance.getrandbits(64)))
    with ExitStack() as stack:
        disk = stack.enter_context(PowerDisk(kind, folder / "state", _DISK_MIB))
        listeners = stack.enter_context(Listeners(folder, _PROCESSES, **WAYS[way]))
        senders = stack.enter_context(Senders(listeners.port, outbox))
        auditor = Auditor(listeners.archive.root, listeners.settings.ledger_url, outbox.objects)
        while tally.cuts[condition] < until:
            _cycle(disk, listeners, senders, auditor, chance)
            tally.cuts[condition] += 1
        tally.add(auditor.audit(is_last=True), outbox, auditor)
    if not tally.problems:
        shutil.rmtree(folder)


def _cycle(
    disk: PowerDisk, listeners: Listeners, senders: Senders, auditor: Auditor, chance: random.Random
) -> None:
    listeners.wait_until_listening()
    senders.begin()
    pause(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS))
    # a machine without power acknowledges nothing: what a sync says behind the cut must reach
    # nobody
    listeners.halt()
    disk.cut()
    listeners.kill(listeners.indices)
    disk.restore()
    for index in listeners.indices:
        auditor.look_into(listeners.inbox(index))
    listeners.start()
    senders.end()
    listeners.wait_until_listening()
    listeners.wait_until_indexed()
    auditor.audit()
