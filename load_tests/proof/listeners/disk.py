"""listener_disk: the archive's small file system is full again and again.

Senders get a refusal, stay associated, and go on after it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load_tests.load.measure import Goal
from load_tests.proof.listeners.audit import Auditor
from load_tests.proof.listeners.processes import Listeners, wait_until
from load_tests.proof.listeners.senders import Objects, digest, drawn
from load_tests.proof.part import Outcome, Plan
from load_tests.proof.small_disk import enlarge, may_mount, small_disk
from load_tests.proof.street.street import NotQuiet
from testing.network.peer_address import Peer
from testing.network.storage_scu import SUCCESS, NotStored, StorageScu
from testing.phantoms.encoded import Outgoing, Template, fresh_objects

_MIB = 1 << 20
_STEP_MIB = 16
_TIMES_FULL = 10
_SHORT_TIMES_FULL = 2
# 0: the file system itself refuses (ENOSPC), in the middle of an object too; otherwise Hilum does
# before it comes to that.
_RESERVES_BYTES = (0, 2 * _MIB)
_SENDERS = 4
_REFUSALS_A_SENDER = 10
_AGAIN_SECONDS = 0.02
_OUT_OF_RESOURCES = 0xA700  # PS3.4 B.2.3
_MAXIMUM_SECONDS = 2.0
_SHOWN = 10


@dataclass(slots=True)
class Sender:
    """One association that is never given up. `answers`: when (`time.monotonic`) and what."""

    chance: random.Random
    objects: Objects
    answers: list[tuple[float, int]] = field(default_factory=list)
    failure: str = ""

    def serve(self, port: int, templates: Sequence[Template], over: threading.Event) -> None:
        """One object after the other; one that is refused goes again."""
        kinds = [(item.sop_class_uid, item.transfer_syntax_uid) for item in templates]
        try:
            with StorageScu(Peer("HILUM", "127.0.0.1", port), "ROUTER", kinds) as association:
                while not over.is_set():
                    self._insist(association, self._draw(templates), over)
        except NotStored as error:
            self.failure = str(error)

    def count(self, status: int, since: float) -> int:
        """Answers of this kind."""
        return sum(1 for at, its in list(self.answers) if at > since and its == status)

    def first_stored(self, since: float) -> float:
        """When the first object after this moment was acknowledged; infinity: none was."""
        return min(
            (at for at, status in self.answers if at > since and status == SUCCESS),
            default=float("inf"),
        )

    def _draw(self, templates: Sequence[Template]) -> Outgoing:
        _, (outgoing,) = fresh_objects([self.chance.choice(templates)], self.chance)
        self.objects.sent[outgoing.sop_instance_uid] = digest(outgoing)
        return outgoing

    def _insist(self, association: StorageScu, outgoing: Outgoing, over: threading.Event) -> None:
        while (status := association.store(outgoing)) != SUCCESS:
            self.answers.append((time.monotonic(), status))
            if over.wait(_AGAIN_SECONDS):
                return
        self.answers.append((time.monotonic(), status))
        self.objects.acknowledged.add(outgoing.sop_instance_uid)


@dataclass(frozen=True, slots=True)
class Filled:
    """What came of one listener."""

    answers: Counter[str]
    recoveries: list[float]
    lost_associations: list[str]
    auditor: Auditor
    failures: list[str]


def listener_disk(plan: Plan) -> Outcome:
    """Full ten times with and ten times without a reserve; the short form two times each."""
    if not may_mount():
        return Outcome(left_out="needs the right to mount a file system; run it as root")
    return fill_disks(
        plan.folder, plan.seed, int(plan.of(_TIMES_FULL, _SHORT_TIMES_FULL)), plan.say
    )


def fill_disks(folder: Path, seed: int, times: int, say: Callable[[str], None]) -> Outcome:
    """So many times for each reserve."""
    try:
        found = [
            _filled(folder / f"reserve-{reserve}", random.Random(seed), reserve, times, say)
            for reserve in _RESERVES_BYTES
        ]
    except NotQuiet as error:
        return Outcome(
            goals=(Goal("listeners that did not come to rest", 1, "listeners", 0),),
            problems=(str(error),),
        )
    return _outcome(found, times)


def _filled(
    folder: Path, chance: random.Random, reserve_bytes: int, times: int, say: Callable[[str], None]
) -> Filled:
    archive = folder / "state/archive"
    templates = drawn()
    objects = Objects()
    over = threading.Event()
    senders = [Sender(random.Random(chance.getrandbits(64)), objects) for _ in range(_SENDERS)]
    with (
        small_disk(archive, _STEP_MIB),
        Listeners(folder, 1, reserve_bytes=reserve_bytes, reject_bytes=0) as listeners,
    ):
        with ThreadPoolExecutor(_SENDERS) as pool:
            serving = [
                pool.submit(sender.serve, listeners.port, templates, over) for sender in senders
            ]
            recoveries = _fill_and_enlarge(archive, senders, times, over, say)
        for each in serving:
            each.result()
        listeners.wait_until_indexed()
        auditor = Auditor(archive, listeners.settings.ledger_url, objects)
        auditor.audit()
        answers = Counter(f"0x{status:04X}" for sender in senders for _, status in sender.answers)
        return Filled(
            answers,
            recoveries,
            [sender.failure for sender in senders if sender.failure],
            auditor,
            listeners.failures(),
        )


def _fill_and_enlarge(
    archive: Path,
    senders: Sequence[Sender],
    times: int,
    over: threading.Event,
    say: Callable[[str], None],
) -> list[float]:
    """Seconds from each time that there was room until the last sender had stored an object."""
    since = 0.0
    recoveries = []
    try:
        for number in range(times):
            _await_each(senders, _OUT_OF_RESOURCES, _REFUSALS_A_SENDER, since)
            since = time.monotonic()
            enlarge(archive, (number + 2) * _STEP_MIB)
            _await_each(senders, SUCCESS, 1, since)
            recoveries.append(max(sender.first_stored(since) for sender in senders) - since)
            say(
                f"full {number + 1} times, {sum(len(sender.answers) for sender in senders)} answers"
            )
    finally:
        over.set()
    return recoveries


def _await_each(senders: Sequence[Sender], status: int, count: int, since: float) -> None:
    """So many answers of this kind in every sender whose association is still there.

    Raises NotQuiet.
    """
    wait_until(
        lambda: all(
            bool(sender.failure) or sender.count(status, since) >= count for sender in senders
        ),
        f"answers 0x{status:04X}",
    )


def _outcome(found: Sequence[Filled], times: int) -> Outcome:
    answers = sum((each.answers for each in found), Counter[str]())
    recoveries = [seconds for each in found for seconds in each.recoveries]
    lost = [failure for each in found for failure in each.lost_associations]
    failures = [line for each in found for line in each.failures]
    figures: dict[str, Any] = {
        "times_full": len(recoveries),
        "answers": dict(sorted(answers.items())),
        "associations": _SENDERS * len(found),
        "seconds_until_all_store_again": [round(seconds, 3) for seconds in recoveries],
    }
    others = answers.total() - answers["0x0000"] - answers["0xA700"]
    goals = [
        Goal("times that it was full", len(recoveries), "times", times * len(found), at_most=False),
        Goal(
            "answers 0xA700",
            answers["0xA700"],
            "answers",
            len(recoveries) * _SENDERS * _REFUSALS_A_SENDER,
            at_most=False,
        ),
        Goal("other answers than 0x0000 and 0xA700", others, "answers", 0),
        Goal("associations lost", len(lost), "associations", 0),
        Goal(
            "room to the first object stored, slowest association",
            max(recoveries, default=float("inf")),
            "s",
            _MAXIMUM_SECONDS,
        ),
        *_summed(found),
        Goal("errors in the listeners' logs", len(failures), "lines", 0),
    ]
    examples = [line for each in found for line in each.auditor.broken.examples()]
    return Outcome(figures, tuple(goals), tuple([*lost, *examples, *failures][:_SHOWN]))


def _summed(found: Sequence[Filled]) -> list[Goal]:
    """The goals of all audits together."""
    together = zip(*(each.auditor.broken.goals() for each in found), strict=True)
    return [
        Goal(same[0].name, sum(goal.value for goal in same), same[0].unit, same[0].goal)
        for same in together
    ]
