"""Cases of rules: facts, and the rule that shall decide. A file of them is a test of the rules."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hilum.errors import ConfigurationError
from hilum.rules import RuleTable, StudyFacts
from hilum.services.rules.study_facts import facts_of_file, header_of
from hilum.settings import Settings

_FACTS: Final = ("name", "expect", "calling", "called", "peer", "campaign", "file")
_FORM: Final = (
    '[[case]] with name, expect (a rule), calling, called, and keywords such as Modality = "DX"'
)


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """One case: the expected rule, and the rule that decides."""

    name: str
    expected: str
    found: str

    @property
    def is_right(self) -> bool:
        """Whether the expected rule decides."""
        return self.expected == self.found


def outcomes(file: Path, settings: Settings, table: RuleTable) -> list[CaseOutcome]:
    """Return the rule that decides about each case. Raises ConfigurationError, OSError."""
    names = [row.name for row in table.rows]
    problems: list[str] = []
    found: list[CaseOutcome] = []
    for number, case in enumerate(_cases(file), 1):
        name = str(case.get("name", f"case {number}"))
        try:
            facts = _facts(case, file.parent, settings)
        except ConfigurationError as error:
            problems += [f"{file}: {name}: {problem}" for problem in error.problems]
            continue
        expected = str(case.get("expect", ""))
        if expected not in names:
            known = ", ".join(names)
            problems.append(f"{file}: {name}: expect must name a rule; there are {known}")
            continue
        found.append(CaseOutcome(name, expected, table.decide(facts).rule))
    if problems:
        raise ConfigurationError(problems)
    return found


def _cases(file: Path) -> list[Mapping[str, Any]]:
    try:
        cases = tomllib.loads(file.read_text(encoding="utf-8")).get("case")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{file}: not valid TOML: {error}"]) from error
    if not isinstance(cases, list) or not all(isinstance(item, Mapping) for item in cases):
        raise ConfigurationError([f"{file}: no cases in it. Write {_FORM}."])
    return cases


def _facts(case: Mapping[str, Any], folder: Path, settings: Settings) -> StudyFacts:
    titles = [case.get("calling", ""), case.get("called", settings.receive.ae_titles[0])]
    peer = case.get("peer", "")
    if not all(isinstance(item, str) for item in (*titles, peer)):
        raise ConfigurationError([f"calling, called and peer are texts. Write {_FORM}."])
    attributes = {name: value for name, value in case.items() if name not in _FACTS}
    calling, called = titles
    if "file" in case:
        if attributes:
            raise ConfigurationError([f"file, or attributes: not both ({', '.join(attributes)})"])
        return facts_of_file(folder / str(case["file"]), calling, called, peer, settings)
    is_of_campaign = bool(case.get("campaign", called in settings.campaign_titles))
    return StudyFacts(
        calling, called, peer, header=header_of(attributes), is_of_campaign=is_of_campaign
    )
