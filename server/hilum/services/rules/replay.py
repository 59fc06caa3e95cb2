"""The last studies under other rules: the decisions that would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from hilum.domain import RuleDecision
from hilum.rules import RuleTable
from hilum.services.rules.study_facts import facts_of_study
from hilum.settings import Settings
from hilum.store.queries.rules import DecidedStudy
from hilum.store.queries.views import LedgerViews

_AT_ONCE: Final = 200
_NO_RULE: Final = "no rule"
_EXAMPLES: Final = 3
_EFFECTS: Final = tuple(
    item.name for item in fields(RuleDecision) if item.name not in ("rule", "digest")
)


@dataclass(slots=True)
class ReplayedChange:
    """Studies that one rule decided about, and another one would.

    `effects`: by setting, the value that was and the one that would be. `examples`: Study Instance
    UIDs of some.
    """

    was: str
    would_be: str
    effects: Mapping[str, tuple[object, object]]
    studies: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Replay:
    """The decisions that would change. `unknown`: studies whose header has left the ledger."""

    studies: int = 0
    unchanged: int = 0
    unknown: int = 0
    changes: list[ReplayedChange] = field(default_factory=list)


def replay(views: LedgerViews, settings: Settings, table: RuleTable | None, last: int) -> Replay:
    """Return the decisions of these rules about the last studies; None: no rules."""
    found = Replay()
    changes: dict[tuple[str, str, str], ReplayedChange] = {}
    for study, image in _last(views, last):
        found.studies += 1
        if image is None or (image.pixels_removed_at is not None and table is not None):
            found.unknown += 1
            continue
        decided = None if table is None else table.decide(facts_of_study(study, image, settings))
        was = _named(study.decision)
        would_be = _named(decided)
        effects = _effects(study.decision, decided)
        if was == would_be and not effects:
            found.unchanged += 1
            continue
        made = ReplayedChange(was, would_be, effects)
        change = changes.setdefault((was, would_be, repr(effects)), made)
        change.studies += 1
        if len(change.examples) < _EXAMPLES:
            change.examples.append(study.study_instance_uid)
    found.changes = sorted(changes.values(), key=lambda change: -change.studies)
    return found


def _last(views: LedgerViews, last: int) -> Iterator[DecidedStudy]:
    before = None
    left = last
    while left > 0 and (part := views.last_decided(before, min(left, _AT_ONCE))):
        yield from part
        left -= len(part)
        before = part[-1][0].id


def _named(decision: RuleDecision | None) -> str:
    return _NO_RULE if decision is None else decision.rule


def _effects(
    was: RuleDecision | None, would_be: RuleDecision | None
) -> dict[str, tuple[object, object]]:
    """Return the settings that differ, each as it was and as it would be."""
    nothing = RuleDecision("", "")
    pairs = {
        name: (getattr(was or nothing, name), getattr(would_be or nothing, name))
        for name in _EFFECTS
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
