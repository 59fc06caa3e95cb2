"""Qualitative Evaluations (TID 1500 rows 12 to 14): decisions and comments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hilum.domain import Decision, Finding, Outcome, Release, Result
from hilum.report.context import HeatMap, ReportContext
from hilum.report.sr.codes import is_private
from hilum.report.sr.content import (
    comment,
    evaluations,
    presence,
    presence_in_words,
    summary,
    words_of,
)
from hilum.report.template.cut import Template, cut_item
from hilum.report.template.unusual import Unusual
from hilum.report.template.values import text
from hilum.report.wording import caveats, not_analysed


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The container and its items; `presences` by the parts of a code, and decision."""

    container: Template
    presences: Mapping[tuple[str, str, str, Decision], bytes]
    worded: Template
    summary: bytes
    comment: Template

    def fill(
        self, result: Result, release: Release, context: ReportContext, heat_map: HeatMap | None
    ) -> bytes:
        """The container. Raises Unusual."""
        said = (
            self._no_decision(result)
            if result.outcome is Outcome.NOT_ANALYSED
            else self._decisions(result)
        )
        comments = [
            self.comment.fill(text(sentence))
            for sentence in caveats(result, release, context, heat_map)
        ]
        return self.container.fill(b"".join([*said, *comments]))

    def _decisions(self, result: Result) -> Iterator[bytes]:
        yield from (
            self._presence(finding) for finding in result.findings if not is_private(finding)
        )
        yield from (
            self.worded.fill(text(words_of(finding)))
            for finding in result.findings
            if is_private(finding)
        )

    def _presence(self, finding: Finding) -> bytes:
        try:
            return self.presences[_decided(finding)]
        except KeyError:
            raise Unusual("unknown_finding") from None

    def _no_decision(self, result: Result) -> Iterator[bytes]:
        yield self.summary
        yield self.comment.fill(text(not_analysed(result)))


def _decided(finding: Finding) -> tuple[str, str, str, Decision]:
    code = finding.code
    return code.value, code.scheme, code.meaning, finding.decision


def compile_evaluations(findings: Sequence[Finding]) -> Evaluations:
    """From a finding of each label."""
    said = {"TextValue": "text"}
    decided = [
        replace(finding, decision=decision)
        for finding in findings
        if not is_private(finding)
        for decision in Decision
    ]
    return Evaluations(
        Template(cut_item(evaluations([]), {"ContentSequence": "items"}), "items"),
        {_decided(finding): Template(cut_item(presence(finding))).fill() for finding in decided},
        Template(cut_item(presence_in_words(findings[0]), said), "text"),
        Template(cut_item(summary())).fill(),
        Template(cut_item(comment(""), said), "text"),
    )
