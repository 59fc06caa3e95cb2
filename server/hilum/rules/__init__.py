"""Rules about studies: conditions on facts, and which rule matches first. No settings, no rows."""

from hilum.rules.conditions import Condition, Negation, parse_conditions
from hilum.rules.facts import StudyFacts, facts_of
from hilum.rules.keywords import WrongCondition
from hilum.rules.table import RuleRow, RuleTable

__all__ = [
    "Condition",
    "Negation",
    "RuleRow",
    "RuleTable",
    "StudyFacts",
    "WrongCondition",
    "facts_of",
    "parse_conditions",
]
