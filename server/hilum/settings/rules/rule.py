"""`[[rules]]`: studies, and how they are handled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from hilum.domain import RuleDecision
from hilum.rules import RuleRow, RuleTable, StudyFacts, WrongCondition, parse_conditions
from hilum.settings.fields import PriorityName, Section

_DIGEST_LETTERS = 12
RuleName = Annotated[str, StringConstraints(pattern=r"^\w[\w .@-]{0,63}$")]
Reason = Annotated[str, StringConstraints(max_length=200)]


class RuleEffect(Section):
    """The `then` of a rule. A setting that is left out is as for all studies."""

    priority: PriorityName | None = Field(
        None,
        description="Priority of their images and studies; none: live, or that of the worklist.",
    )
    releases: tuple[str, ...] | None = Field(
        None, min_length=1, description="Releases that read them; none: models.releases."
    )
    destinations: tuple[str, ...] | None = Field(
        None, description="Names of the destinations of their documents; none: all; []: nowhere."
    )
    quiet_seconds: float | None = Field(
        None, ge=0, le=86400, description="Quiet period; none: studies.quiet_seconds."
    )
    maximum_wait_seconds: float | None = Field(
        None,
        ge=0,
        description="How long they may grow; none: studies.maximum_wait_seconds.",
    )
    not_analysed: bool = Field(
        default=False,
        description="No release reads them: they are stored and answered as not analysed.",
    )
    reason: Reason = Field("", description="Why they are not analysed: results show it.")

    @model_validator(mode="after")
    def _has_a_reason(self) -> RuleEffect:
        if self.not_analysed and not self.reason.strip():
            raise ValueError(
                'not_analysed needs a reason, which results show: reason = "no consent"'
            )
        if self.reason and not self.not_analysed:
            raise ValueError("reason is that of not_analysed = true; set it, or leave reason out")
        return self


class StudyRule(Section):
    """A rule about studies: `[[rules]]`, in their order. The first that matches decides.

    The first image of a study is looked at.
    """

    name: RuleName = Field(
        description=(
            "Rules are a list, `[[rules]]`: the first that matches decides. Its name, which pages"
            " and `hilum rules` show."
        )
    )
    when: Mapping[str, Any] = Field(
        {},
        description=(
            "Conditions, all of which hold: keywords of DICOM attributes, and calling, called,"
            " peer, view, age, campaign, not (docs/operate/rules.md). The last rule has none."
        ),
    )
    then: RuleEffect = RuleEffect()


def table_of(rules: Sequence[StudyRule]) -> RuleTable:
    """Return the rules, compiled. Raises WrongCondition for conditions that mean nothing."""
    digest = digest_of(rules)
    return RuleTable(
        [RuleRow(parse_conditions(rule.when), decision_of(rule, digest)) for rule in rules]
    )


def decision_of(rule: StudyRule, digest: str) -> RuleDecision:
    """Return the decision of a rule."""
    then = rule.then
    return RuleDecision(
        rule=rule.name,
        digest=digest,
        priority=then.priority,
        releases=then.releases,
        destinations=then.destinations,
        quiet_seconds=then.quiet_seconds,
        maximum_wait_seconds=then.maximum_wait_seconds,
        not_analysed=then.reason.strip(),
    )


def digest_of(rules: Iterable[StudyRule]) -> str:
    """Return a short digest of the rules: another one means that a rule was changed."""
    said = json.dumps([rule.model_dump(mode="json") for rule in rules], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:_DIGEST_LETTERS]


def problems_of(rules: Sequence[StudyRule], ae_titles: Sequence[str]) -> list[str]:
    """Return the problems of the conditions and the order of rules.

    `ae_titles`: Called AE Titles that studies may have; none: they are not known.
    """
    problems: list[str] = []
    names = [rule.name for rule in rules]
    problems += [
        f"{name}: two rules have this name; rename one"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    for rule in rules[:-1]:
        if not rule.when:
            problems.append(
                f"{rule.name}: it has no `when`, so no rule behind it is reached; put it last"
            )
    if rules and rules[-1].when:
        problems.append(
            "the last rule must have no `when`: it says what is done with all other studies. Add:"
            ' [[rules]] name = "default"'
        )
    for rule in rules:
        try:
            conditions = parse_conditions(rule.when)
        except WrongCondition as error:
            problems.append(f"{rule.name}: when.{error}")
            continue
        called = next((item for item in conditions if item.name == "called"), None)
        facts = [StudyFacts("", title) for title in ae_titles]
        if called is not None and facts and not any(map(called.holds, facts)):
            problems.append(
                f"{rule.name}: when.called: {', '.join(called.titles)} is not in"
                " receive.ae_titles; add it there"
            )
    return problems
