"""Why a rule matches or does not: wanted and found, without values of the patient."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hilum.rules.conditions import AnyCondition, Condition, Negation
from hilum.rules.facts import StudyFacts
from hilum.rules.keywords import Attribute
from hilum.rules.table import RuleTable

HIDDEN: Final = "a value that is not shown"
ABSENT: Final = "absent"
_MASK: Final = "***"
# Values by which a patient is known, which people also write into free text.
_NAMING: Final = (
    Attribute("AccessionNumber", 0x00080050, "SH"),
    Attribute("PatientName", 0x00100010, "PN"),
    Attribute("PatientID", 0x00100020, "LO"),
    Attribute("PatientBirthDate", 0x00100030, "DA"),
    Attribute("OtherPatientIDs", 0x00101000, "LO"),
    Attribute("OtherPatientNames", 0x00101001, "PN"),
    Attribute("PatientBirthName", 0x00101005, "PN"),
    Attribute("PatientAddress", 0x00101040, "LO"),
    Attribute("PatientMotherBirthName", 0x00101060, "PN"),
    Attribute("PatientTelephoneNumbers", 0x00102154, "SH"),
)
_WORD: Final = re.compile(r"\w+")
_LONG: Final = 4  # letters: such a word is masked inside another, too


@dataclass(frozen=True, slots=True)
class ExplainedCondition:
    """A condition of a rule, wanted and found. `conditions`: those of a `not`."""

    name: str
    holds: bool
    wanted: str = ""
    found: str = ""
    conditions: tuple[ExplainedCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplainedRule:
    """A rule. `decides`: it is the first that matches."""

    name: str
    matches: bool
    decides: bool
    conditions: tuple[ExplainedCondition, ...]


def explain(table: RuleTable, facts: StudyFacts) -> list[ExplainedRule]:
    """Return every rule with each of its conditions, in their order."""
    facts.read(table.tags)
    mask = _mask(facts)
    found: list[ExplainedRule] = []
    for row in table.rows:
        conditions = tuple(_explained(item, facts, mask) for item in row.conditions)
        matches = all(item.holds for item in conditions)
        decides = matches and not any(rule.matches for rule in found)
        found.append(ExplainedRule(row.name, matches, decides, conditions))
    return found


def _explained(
    condition: AnyCondition, facts: StudyFacts, mask: re.Pattern[str] | None
) -> ExplainedCondition:
    holds = condition.holds(facts)
    if isinstance(condition, Negation):
        inner = tuple(_explained(item, facts, mask) for item in condition.conditions)
        return ExplainedCondition(condition.name, holds, conditions=inner)
    return ExplainedCondition(
        condition.name, holds, condition.wanted, _shown(condition, facts, mask)
    )


def _shown(condition: Condition, facts: StudyFacts, mask: re.Pattern[str] | None) -> str:
    values = condition.found(facts)
    if not values:
        return ABSENT
    if condition.is_of_patient:
        return HIDDEN
    text = ", ".join(_in_words(value) for value in values)
    return mask.sub(_MASK, text) if mask and condition.tag else text


def _in_words(value: str | float) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _mask(facts: StudyFacts) -> re.Pattern[str] | None:
    """Return what is masked in free text: words that name the patient; None: there are none."""
    facts.read([attribute.tag for attribute in _NAMING])
    words = {
        word.casefold()
        for attribute in _NAMING
        for text in facts.texts(attribute)
        for word in _WORD.findall(text.replace("_", " "))
    }
    patterns = list(_patterns(sorted(words, key=len, reverse=True)))
    return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None


def _patterns(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        is_inside = len(word) >= _LONG or not word.isascii()
        if is_inside:
            yield re.escape(word)
        elif len(word) > 1:
            yield rf"\b{re.escape(word)}\b"


def as_text(rules: Iterable[ExplainedRule]) -> Iterator[str]:
    """Yield the lines that people read: the rule that decides has an arrow."""
    for number, rule in enumerate(rules, 1):
        yield f"{'→' if rule.decides else ' '} {number} {rule.name}"
        if not rule.conditions:
            yield "      ✓ all other studies"
        for condition in rule.conditions:
            yield from _condition_lines(condition, "      ")


def _condition_lines(condition: ExplainedCondition, indent: str) -> Iterator[str]:
    sign = "✓" if condition.holds else "✗"
    if condition.conditions:
        yield f"{indent}{sign} {condition.name}, so not all of these:"
        for item in condition.conditions:
            yield from _condition_lines(item, f"{indent}    ")
        return
    yield f"{indent}{sign} {condition.name}: wanted {condition.wanted}, found {condition.found}"
