"""The findings of a result, in words that claim no more than it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from hilum.api.pages.formatting import Chip, chip, meaning, plain
from hilum.domain import Decision, Outcome

Item = Mapping[str, Any]
_SHOWN: Final = 3  # findings in a line of the list
_KEEP: Final = "\N{NO-BREAK SPACE}"
_DECISIONS: Final[Mapping[str, Chip]] = {
    Decision.PRESENT: Chip("present", "bad"),
    Decision.ABSENT: Chip("absent", "quiet"),
    Decision.UNDECIDED: Chip("no decision", "quiet"),
}


@dataclass(frozen=True, slots=True)
class ResultLine:
    """One release's result in a line of the list."""

    release: str
    words: str
    caveats: Sequence[Chip]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One label.

    `bar` and `mark` are the score and the operating point in percent; None where this scale has no
    such point.
    """

    text: str
    code: str
    score: str
    probability: str | None
    operating_point: str | None
    decision: Chip
    bar: float | None
    mark: float | None


def result_line(result: Item) -> ResultLine:
    """For the list of studies."""
    return ResultLine(result["release"], _words(result), caveats(result))


def caveats(result: Item) -> list[Chip]:
    """Return the caveats that a reader needs before a number."""
    found = []
    if result["outcome"] == Outcome.PARTIAL:
        found.append(Chip("partial", "warn"))
    if result["outcome"] != Outcome.NOT_ANALYSED and result.get("is_trained") is False:
        found.append(Chip("untrained", "warn"))
    elif result["outcome"] != Outcome.NOT_ANALYSED and result.get("is_calibrated") is False:
        found.append(Chip("uncalibrated", "quiet"))
    return found


def _words(result: Item) -> str:
    if result["outcome"] == Outcome.NOT_ANALYSED:
        return (
            f"not analysed: {meaning(result['reason'])}"
            if result["reason"]
            else plain(result["outcome"])
        )
    findings = result.get("findings") or ()
    present = sorted(
        (item for item in findings if item["decision"] == Decision.PRESENT),
        key=itemgetter("score"),
        reverse=True,
    )
    if present:
        named = ", ".join(f"{item['text']}{_KEEP}{_score(item, 2)}" for item in present[:_SHOWN])
        return named + (f" and {len(present) - _SHOWN} more" if len(present) > _SHOWN else "")
    if any(item["decision"] == Decision.ABSENT for item in findings):
        return "no finding reaches its operating point"
    return "no decision"


def _score(item: Item, places: int) -> str:
    """Return the score of the decision, also where there is a probability.

    It never crosses the operating point by rounding.
    """
    score = float(item["score"])
    point = item["operating_point"]
    text = f"{score:.{places}f}"
    is_on_its_side = point is None or (float(text) >= point) == (score >= point)
    return text if is_on_its_side else repr(score)


def _point(item: Item) -> str:
    """The operating point, beside a score of three places.

    They must not look equal where the score is below it.
    """
    score = float(item["score"])
    point = float(item["operating_point"])
    text = f"{point:.3f}"
    return text if (float(_score(item, 3)) >= float(text)) == (score >= point) else repr(point)


def _share(probability: float) -> str:
    """Percent, in which nothing uncertain is certain."""
    text = f"{probability:.1%}"
    if text == "100.0%" and probability < 1:
        return "above 99.9%"
    return "below 0.1%" if text == "0.0%" and probability > 0 else text


def finding_rows(result: Item) -> list[FindingRow]:
    """Decisions first, then by score."""
    rank = {Decision.PRESENT: 0, Decision.UNDECIDED: 1, Decision.ABSENT: 2}
    ordered = sorted(
        result.get("findings") or (),
        key=lambda item: (rank.get(item["decision"], 1), -item["score"]),
    )
    return [_finding_row(item) for item in ordered]


def _finding_row(item: Item) -> FindingRow:
    point = item["operating_point"]
    return FindingRow(
        text=item["text"],
        code=f"{item['code']['value']} {item['code']['scheme']}",
        score=_score(item, 3),
        probability=None if item["probability"] is None else _share(item["probability"]),
        operating_point=None if point is None else _point(item),
        decision=_DECISIONS.get(item["decision"]) or chip(item["decision"]),
        bar=_percent(item["score"]),
        mark=_percent(point),
    )


def _percent(value: float | None) -> float | None:
    """Return the percentage on a bar from 0 to 1.

    None beyond it (a release without activation gives any number).
    """
    return round(100 * value, 1) if value is not None and 0 <= value <= 1 else None
