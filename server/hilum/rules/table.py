"""All rules in their order: the first that matches decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hilum.domain import RuleDecision
from hilum.rules.conditions import AnyCondition
from hilum.rules.facts import StudyFacts

_MOST_TITLES: Final = 256  # the titles come from the network


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule: all conditions hold, or there is none. `decision` is what then follows."""

    conditions: tuple[AnyCondition, ...]
    decision: RuleDecision

    @property
    def name(self) -> str:
        """Its name in the settings."""
        return self.decision.rule


class RuleTable:
    """The rules of the settings. The last one has no condition."""

    def __init__(self, rows: Sequence[RuleRow]) -> None:
        self.rows = tuple(rows)
        self.tags = frozenset(
            tag for row in rows for condition in row.conditions for tag in condition.tags
        )
        self._by_titles: dict[tuple[str, str], tuple[RuleRow, ...]] = {}

    def decide(self, facts: StudyFacts) -> RuleDecision:
        """Return the decision of the first rule that matches."""
        rows = self._for_titles(facts)
        if len(rows) > 1:
            facts.read(self.tags)
        return next(
            row.decision for row in rows if all(item.holds(facts) for item in row.conditions)
        )

    def reachable(
        self, calling: Collection[str], called: Collection[str]
    ) -> Iterator[tuple[str, RuleRow]]:
        """Yield each rule that may match a study of these AE Titles, with the Calling one.

        A condition on a header may hold or not.
        """
        for sender in calling:
            for receiver in called:
                for row in self._for_titles(StudyFacts(sender, receiver)):
                    yield sender, row

    def _for_titles(self, facts: StudyFacts) -> tuple[RuleRow, ...]:
        """Return the rules whose conditions on AE Titles hold, up to the first without others.

        These conditions are left out of them.
        """
        key = (facts.calling_ae_title, facts.called_ae_title)
        found = self._by_titles.get(key)
        if found is None:
            if len(self._by_titles) >= _MOST_TITLES:
                self._by_titles.clear()
            found = tuple(self._candidates(facts))
            self._by_titles[key] = found
        return found

    def _candidates(self, facts: StudyFacts) -> Iterator[RuleRow]:
        for row in self.rows:
            if all(item.holds(facts) for item in row.conditions if item.titles):
                others = tuple(item for item in row.conditions if not item.titles)
                yield RuleRow(others, row.decision)
                if not others:
                    return
