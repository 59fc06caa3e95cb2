"""The agreement of two releases about the same studies.

Finding by finding; pure arithmetic over the outputs of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hilum.domain import Decision, Finding, Result

Said = tuple[float, float, str, str]
"""Score and the shadow's score, decision and the shadow's decision, of one finding."""

_DECIDED: Final = (Decision.PRESENT.value, Decision.ABSENT.value)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement about one finding.

    `decided`: studies on which both have decided; `flips`: of these, where they differ. `kappa`:
    Cohen's (Educational and Psychological Measurement 20, 1960), None where one class alone occurs.
    """

    finding: str
    studies: int
    decided: int
    flips: int
    mean_difference: float
    kappa: float | None


def said_by_both(reported: Result, shadow: Result) -> dict[str, Said]:
    """For each finding that both results have."""
    theirs = {item.key: item for item in shadow.findings}
    return {
        item.key: _said(item, theirs[item.key]) for item in reported.findings if item.key in theirs
    }


def is_flip(said: Said) -> bool:
    """Whether one says present and the other absent."""
    return is_decided(said) and said[2] != said[3]


def is_decided(said: Said) -> bool:
    """Whether both decide at all.

    Untrained weights and labels without an operating point never do.
    """
    return said[2] in _DECIDED and said[3] in _DECIDED


def agreements(studies: Iterable[Mapping[str, Said]]) -> list[Agreement]:
    """Over all compared studies, in the order in which findings are met."""
    gathered: dict[str, list[Said]] = {}
    for study in studies:
        for key, said in study.items():
            gathered.setdefault(key, []).append(said)
    return [_agreement(key, said) for key, said in gathered.items()]


def kappa(pairs: Iterable[tuple[str, str]]) -> float | None:
    """Return (observed - expected) / (1 - expected) agreement of two raters over classes."""
    found = list(pairs)
    first = Counter(one for one, _ in found)
    second = Counter(other for _, other in found)
    if len(first | second) < 2:
        return None
    observed = sum(one == other for one, other in found) / len(found)
    expected = sum(first[word] * second[word] for word in first) / len(found) ** 2
    return (observed - expected) / (1 - expected)


def _said(finding: Finding, theirs: Finding) -> Said:
    return finding.score, theirs.score, finding.decision.value, theirs.decision.value


def _agreement(key: str, said: list[Said]) -> Agreement:
    decided = [item for item in said if is_decided(item)]
    return Agreement(
        finding=key,
        studies=len(said),
        decided=len(decided),
        flips=sum(map(is_flip, decided)),
        mean_difference=sum(abs(item[0] - item[1]) for item in said) / len(said),
        kappa=kappa((item[2], item[3]) for item in decided),
    )
