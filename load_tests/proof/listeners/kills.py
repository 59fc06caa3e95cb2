"""listener: kill -9 of listener processes at random moments, while storescu sends.

After each the bytes, the names and the rows.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load_tests.load.measure import Goal
from load_tests.proof.listeners.audit import Auditor, add_goals
from load_tests.proof.listeners.processes import Listeners
from load_tests.proof.listeners.senders import Outbox, Senders, drawn
from load_tests.proof.part import Outcome, Plan, pause
from load_tests.proof.street.street import NotQuiet
from testing.phantoms.encoded import Template

_KILLS = 200
_SHORT_KILLS = 5
_KILLS_A_ROUND = 25  # then a new archive: it is listed after each kill, and deleted in the end
_PROCESSES = 2
_SHORTEST_SECONDS = 0.02
_LONGEST_SECONDS = 0.8
_BOTH_SHARE = 0.5
_AGAIN_SHARE = 0.2
_LONGEST_START_SECONDS = 1.5
_SHOWN = 10


@dataclass(slots=True)
class Tally:
    """What all rounds together came to.

    `kills`: moments; `killed`: how many processes died at each.
    """

    kills: int = 0
    killed: Counter[int] = field(default_factory=Counter)
    associations: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    goals: dict[str, Goal] = field(default_factory=dict)
    restless: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, kept: int, outbox: Outbox, auditor: Auditor, failures: Sequence[str]) -> None:
        """One round."""
        counts = {
            "objects_sent": len(outbox.objects.sent),
            "objects_acknowledged": len(outbox.objects.acknowledged),
            "objects_in_the_ledger": kept,
            "half_received_at_a_kill": auditor.left.half_received,
            "without_their_place_at_a_kill": auditor.left.without_place,
        }
        self.figures.update(counts)
        add_goals(
            self.goals,
            (
                *auditor.broken.goals(),
                Goal("errors in the listeners' logs", len(failures), "lines", 0),
            ),
        )
        self.problems += [line[:300] for line in (*auditor.broken.examples(), *failures[:_SHOWN])]

    def outcome(self, wanted: int) -> Outcome:
        """With the count of kills as a goal: a proof that killed too little proves nothing."""
        figures: dict[str, Any] = {
            "kills": self.kills,
            "processes_killed": sum(many * count for many, count in self.killed.items()),
            "associations": dict(sorted(self.associations.items())),
            **self.figures,
        }
        made = Goal("kills at random moments", self.kills, "kills", wanted, at_most=False)
        rest = Goal("rounds that did not come to rest", self.restless, "rounds", 0)
        return Outcome(figures, (made, *self.goals.values(), rest), tuple(self.problems[:_SHOWN]))


def listener_kills(plan: Plan) -> Outcome:
    """200 kills; the short form 5."""
    if shutil.which("storescu") is None:
        return Outcome(left_out="needs DCMTK's storescu")
    return kill_listeners(plan.folder, plan.seed, int(plan.of(_KILLS, _SHORT_KILLS)), plan.say)


def kill_listeners(folder: Path, seed: int, wanted: int, say: Callable[[str], None]) -> Outcome:
    """So many kills of one or both of two processes."""
    chance = random.Random(seed)
    tally = Tally()
    templates = drawn()
    while tally.kills < wanted and not tally.problems:
        try:
            _round(
                folder / str(tally.kills),
                chance,
                tally,
                templates,
                min(wanted, tally.kills + _KILLS_A_ROUND),
            )
        except NotQuiet as error:
            tally.restless += 1
            tally.problems.append(str(error))
        say(f"{tally.kills} kills, {tally.figures['objects_acknowledged']} objects acknowledged")
    return tally.outcome(wanted)


def _round(
    folder: Path, chance: random.Random, tally: Tally, templates: Sequence[Template], until: int
) -> None:
    """An archive of its own; deleted when nothing was wrong with it."""
    outbox = Outbox(folder / "out", templates, random.Random(chance.getrandbits(64)))
    with Listeners(folder, _PROCESSES) as listeners, Senders(listeners.port, outbox) as senders:
        auditor = Auditor(listeners.archive.root, listeners.settings.ledger_url, outbox.objects)
        while tally.kills < until:
            _cycle(listeners, senders, auditor, chance, tally)
        tally.associations += senders.associations
        tally.add(auditor.audit(is_last=True), outbox, auditor, listeners.failures())
    if not tally.problems:
        shutil.rmtree(folder)


def _cycle(
    listeners: Listeners, senders: Senders, auditor: Auditor, chance: random.Random, tally: Tally
) -> None:
    """Senders wait in the socket's queue while nobody accepts, and end when they are served by those that follow."""
    listeners.wait_until_listening()
    senders.begin()
    pause(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS))
    _kill(listeners, auditor, chance, tally)
    while chance.random() < _AGAIN_SHARE:  # also those that have just been started, and scan
        pause(chance.uniform(0, _LONGEST_START_SECONDS))
        _kill(listeners, auditor, chance, tally)
    senders.end()
    listeners.wait_until_listening()
    listeners.wait_until_indexed()
    auditor.audit()


def _kill(listeners: Listeners, auditor: Auditor, chance: random.Random, tally: Tally) -> None:
    victims = chance.sample(listeners.indices, _PROCESSES if chance.random() < _BOTH_SHARE else 1)
    listeners.kill(victims)
    tally.kills += 1
    tally.killed[len(victims)] += 1
    for index in victims:
        auditor.look_into(listeners.inbox(index))
    listeners.start()
