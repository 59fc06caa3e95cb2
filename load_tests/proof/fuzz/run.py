"""fuzz: broken and odd associations by the hundred thousand at a real listener.

What it acknowledges must be there, and be DICOM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load_tests.load.measure import Goal
from load_tests.proof.fuzz.archive import disagreements, objects
from load_tests.proof.fuzz.listener import FuzzedListener, Size, growth
from load_tests.proof.fuzz.peer import Played, SilentError, play
from load_tests.proof.fuzz.scripts import asked, script, valid
from load_tests.proof.part import Outcome, Plan

_CASES = 100_000
_SHORT_CASES = 1_000
_ORACLE = "testing.pynetdicom_listener"
_ORACLE_CASES = 2_000
_SHORT_ORACLE_CASES = 20
_AT_ONCE = 8
_WARM_SHARE = 0.2  # of the cases: until then caches fill
_BATCH = 500
_MAXIMUM_GROWTH_MIB = 24.0
_POOL_DESCRIPTORS = (
    11  # five connections that a pool keeps, two files each, and the shared memory of them all
)
_SHOWN = 10


@dataclass(slots=True)
class Campaign:
    """What all cases together came to."""

    cases: int = 0
    accepted: int = 0
    silent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[str, str] = field(default_factory=dict)
    possible: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def add(self, number: int, played: Played | SilentError) -> None:
        """One case; `number` and the seed bring it back."""
        self.cases += 1
        if isinstance(played, SilentError):
            self.silent += 1
            self.problems.append(f"case {number}: {played}")
            return
        self.accepted += played.is_accepted
        self.statuses.update(f"{status:#06x}" for status in played.statuses)
        self.acknowledged |= played.acknowledged
        self.possible |= played.possible
        self.problems += [f"case {number}: {problem}" for problem in played.problems]


@dataclass(frozen=True, slots=True)
class Judged:
    """Figures and goals, and examples of what is wrong."""

    figures: dict[str, Any]
    goals: tuple[Goal, ...]
    problems: tuple[str, ...]


def fuzz(plan: Plan) -> Outcome:
    """2,000 valid associations at both listeners, then 100,000, most of them spoilt, at ours.

    The short form 20 and 1,000.
    """
    compared = compare(
        plan.folder / "compared", plan.seed, int(plan.of(_ORACLE_CASES, _SHORT_ORACLE_CASES))
    )
    attacked = attack(
        plan.folder / "attacked", plan.seed, int(plan.of(_CASES, _SHORT_CASES)), plan.say
    )
    figures = {**attacked.figures, **compared.figures}
    return Outcome(
        figures, (*attacked.goals, *compared.goals), (*attacked.problems, *compared.problems)
    )


def attack(folder: Path, seed: int, count: int, say: Callable[[str], None]) -> Judged:
    """So many associations at our listener."""
    campaign = Campaign()
    warm = int(count * _WARM_SHARE)
    with FuzzedListener(folder) as listener:
        idle = _settled(listener, campaign, seed, warm)
        for batch in _batches(warm, count):
            run(listener, campaign, seed, batch)
            say(f"{campaign.cases} associations, {len(campaign.acknowledged)} objects acknowledged")
        return _judged(listener, campaign, idle, listener.rest(idle))


def _settled(listener: FuzzedListener, campaign: Campaign, seed: int, warm: int) -> Size:
    """Its size when the first few associations are over."""
    run(listener, campaign, seed, range(warm))
    return listener.steady()


def _batches(begin: int, end: int) -> Iterator[range]:
    return (range(at, min(at + _BATCH, end)) for at in range(begin, end, _BATCH))


def run(listener: FuzzedListener, campaign: Campaign, seed: int, numbers: Sequence[int]) -> None:
    """These cases, eight at once."""
    asked()  # once, before eight threads ask
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for number, played in zip(
            numbers, pool.map(lambda number: _case(listener, seed, number), numbers), strict=True
        ):
            campaign.add(number, played)


def _case(listener: FuzzedListener, seed: int, number: int) -> Played | SilentError:
    try:
        return play(listener.port, script(seed, number))
    except (SilentError, ConnectionRefusedError) as error:
        return SilentError(str(error))


def _judged(listener: FuzzedListener, campaign: Campaign, before: Size, after: Size) -> Judged:
    wrong = disagreements(campaign.acknowledged, campaign.possible, listener.archive.root)
    failures = listener.failures()
    grown = growth(before, after)
    figures = {
        "associations": campaign.cases,
        "associations_accepted": campaign.accepted,
        "answers": dict(sorted(campaign.statuses.items())),
        "objects_acknowledged": len(campaign.acknowledged),
        "growth": grown,
    }
    goals = (
        Goal("listeners that died", int(not listener.is_alive), "processes", 0),
        Goal("errors in the listener's log", len(failures), "lines", 0),
        Goal("peers without an answer", campaign.silent, "associations", 0),
        Goal("wrong answers", len(campaign.problems) - campaign.silent, "answers", 0),
        Goal("acknowledged objects lost, or no DICOM", len(wrong), "objects", 0),
        Goal("half-received files", listener.half_received(), "files", 0),
        Goal("threads left over", grown["threads"], "threads", 0),
        Goal("descriptors left over", grown["descriptors"], "descriptors", 0),
        Goal(
            "growth of the ledger's descriptors",
            grown["ledger_descriptors"],
            "descriptors",
            _POOL_DESCRIPTORS,
        ),
        Goal("growth of memory", grown["mib"], "MiB", _MAXIMUM_GROWTH_MIB),
    )
    return Judged(
        figures,
        goals,
        tuple(
            line[:300] for lines in (campaign.problems, wrong, failures) for line in lines[:_SHOWN]
        ),
    )


def compare(folder: Path, seed: int, count: int) -> Judged:
    """Valid associations at both listeners, one after the other.

    Where do statuses, their order or what is kept differ?
    """
    with (
        FuzzedListener(folder / "ours") as ours,
        FuzzedListener(folder / "oracle", _ORACLE) as oracle,
    ):
        listeners = (ours, oracle)
        answers = [
            [_valid(listener, seed, number) for listener in listeners] for number in range(count)
        ]
        for listener in listeners:
            listener.rest(listener.steady())
        kept = [set(objects(listener.archive.root)) for listener in listeners]
    different = [
        f"valid case {number}: {mine} and {its}"
        for number, (mine, its) in enumerate(answers)
        if mine != its
    ]
    different += [f"an object that only one has kept: {digest}" for digest in kept[0] ^ kept[1]]
    figures = {
        "associations_compared": count,
        "answers_compared": sum(len(mine) for mine, _ in answers),
        "objects_compared": len(kept[0]),
    }
    return Judged(
        figures,
        (Goal("differences from pynetdicom", len(different), "differences", 0),),
        tuple(different[:_SHOWN]),
    )


def _valid(listener: FuzzedListener, seed: int, number: int) -> list[int] | str:
    """Statuses in their order."""
    try:
        return play(listener.port, valid(seed, number)).statuses
    except SilentError as error:
        return str(error)
