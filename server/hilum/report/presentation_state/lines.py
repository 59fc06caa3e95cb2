"""The words of the text layer: few and short lines, which hide little of an image (pure)."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

from hilum.domain import Decision, Finding, Outcome, Release, Result
from hilum.report.context import ReportContext
from hilum.report.numbers import percent, score_in_words
from hilum.report.wording import DECISIONS, meaning_of

LINE_COLUMNS: Final = 52  # an ideograph takes two
FOOT_COLUMNS: Final = 100
_FINDINGS: Final = 5
_DISCLAIMER_LINES: Final = 2
_TITLE: Final = "AI RESULT - NOT FOR DIAGNOSIS"
_UNTRAINED: Final = "UNTRAINED WEIGHTS: a technical test"
_WITHDRAWN: Final = ("Earlier AI overlays of this study", "no longer hold.")
_CUT: Final = "..."
_ORDER: Final = {Decision.PRESENT: 0, Decision.UNDECIDED: 1, Decision.ABSENT: 2}


def head_lines(result: Result, release: Release, numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Return the lines of the block at the top left, nine at most of `LINE_COLUMNS` columns each.

    Present findings come first, then those with the highest scores. `numbers`: of the contours on
    this image, by the key of the finding.
    """
    if result.outcome is Outcome.NOT_ANALYSED:
        said = [f"Not analysed: {meaning_of(result.reason)}", *_WITHDRAWN]
    else:
        said = _findings(result, numbers)
    lines = [_TITLE, _release_line(result, release)]
    lines += [] if result.is_trained else [_UNTRAINED]
    return tuple(fitted(text, LINE_COLUMNS) for text in (*lines, *said))


def foot_lines(context: ReportContext, note: str = "") -> tuple[str, ...]:
    """Return the lines at the bottom: a note, and the disclaimer of the settings, cut to two."""
    lines = _wrapped(_clean(context.disclaimer), FOOT_COLUMNS)
    shown = lines[:_DISCLAIMER_LINES]
    if len(lines) > _DISCLAIMER_LINES:
        shown[-1] = fitted(f"{shown[-1]} {lines[_DISCLAIMER_LINES]}", FOOT_COLUMNS)
    return (*([note] if note else []), *shown)


def listed(findings: Sequence[Finding]) -> list[Finding]:
    """Return all findings, the important ones first."""
    return sorted(findings, key=lambda item: (_ORDER[item.decision], -item.score))


def fitted(text: str, columns: int) -> str:
    """Return the text without line ends, cut to so many columns."""
    clean = _clean(text)
    return clean if width_of(clean) <= columns else _first(clean, columns - len(_CUT)) + _CUT


def width_of(text: str) -> int:
    """Columns of a text in letters of one width: marks take none, ideographs two."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _clean(text: str) -> str:
    """Return the text on one line, without control characters (PS3.3 C.10.5.1.1)."""
    return " ".join(
        "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in text).split()
    )


def _first(text: str, columns: int) -> str:
    """Return as much of the beginning as fits, and no half of a letter with its marks."""
    used = 0
    for place, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:place].rstrip()
    return text


def _wrapped(text: str, columns: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if width_of(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(fitted(word, columns))
    return [line for line in lines if line]


def _release_line(result: Result, release: Release) -> str:
    """Return release and state; the release may be cut, its state never."""
    after = ", unverified"
    after += ", uncalibrated" if result.findings and not result.is_calibrated else ""
    after += f", rev. {result.revision}" if result.revision > 1 else ""
    return fitted(release.id, LINE_COLUMNS - len(after)) + after


def _findings(result: Result, numbers: Mapping[str, int]) -> list[str]:
    if not result.findings:
        return ["No finding is assessed."]
    order = listed(result.findings)
    lines = [_finding(item, numbers.get(item.key)) for item in order[:_FINDINGS]]
    left = order[_FINDINGS:]
    present = sum(item.decision is Decision.PRESENT for item in left)
    named = f" ({present} of them present)" if present else ""
    return [*lines, *([f"{len(left)} more{named}: see the report."] if left else [])]


def _finding(finding: Finding, number: int | None) -> str:
    """`[1] Effusion: Present, 0.610 (at 0.5), 58%`: the name is cut, the numbers never.

    The score with its operating point, then the probability where there is one.
    """
    mark = "" if number is None else f"[{number}] "
    point = finding.operating_point
    after = f": {DECISIONS[finding.decision]}, {score_in_words(finding)}"
    after += "" if point is None else f" (at {point:.4g})"
    after += "" if finding.probability is None else f", {percent(finding.probability)}"
    return mark + fitted(finding.text, LINE_COLUMNS - len(mark) - len(after)) + after
