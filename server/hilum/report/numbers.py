"""Numbers of a finding as documents write them.

With the digits that a person reads, and never across a limit by rounding.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from pydicom.valuerep import format_number_as_ds

from hilum.domain import Finding

# digits of a float32, and those that distinguish any two doubles
_DIGITS = 7
_MOST_DIGITS = 17
_SAFE_PLACES: Final = (
    13  # behind the point of a number below 10: within the 16 characters of DS (PS3.5 6.2)
)
_CERTAIN: Final = (5e-324, 100.0)  # percent: above 0 stays above, below 100 stays below


def score_of(finding: Finding) -> float:
    """The score, on its side of the operating point: with it the decision was made."""
    short = float(f"{finding.score:.{_DIGITS}g}")
    return (
        short
        if _is_on_its_side(short, finding)
        else _longer(finding.score, (finding.operating_point or 0.0,))
    )


def score_in_words(finding: Finding) -> str:
    """Return the number with three digits, for people."""
    text = f"{finding.score:.3f}"
    return text if _is_on_its_side(float(text), finding) else str(score_of(finding))


def certainty_of(probability: float) -> float:
    """In percent."""
    value = probability * 100
    short = round(value, 4)
    return short if _is_alike(short, value, _CERTAIN) else _longer(value, _CERTAIN)


def percent(probability: float) -> str:
    """Whole percents, in which nothing uncertain is certain."""
    text = f"{probability:.0%}"
    if text == "100%" and probability < 1:
        return "above 99%"
    return "below 1%" if text == "0%" and probability > 0 else text


def _is_on_its_side(written: float, finding: Finding) -> bool:
    point = finding.operating_point
    return point is None or (written >= point) == (finding.score >= point)


def _is_alike(written: float, value: float, limits: tuple[float, ...]) -> bool:
    """Below each limit, or at and above it, as the value is."""
    return all((written >= limit) == (value >= limit) for limit in limits)


def _longer(value: float, limits: tuple[float, ...]) -> float:
    """With as few more digits as leave it on its side of each limit."""
    written = value
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        written = float(format_number_as_ds(float(f"{value:.{digits}g}")))
        if _is_alike(written, value, limits):
            return written
    # Closer to the limit than DS can tell: the next number on its own side.
    step = Decimal(1).scaleb(len(str(int(value))) - _SAFE_PLACES)
    return float(Decimal(value).quantize(step, ROUND_FLOOR if written > value else ROUND_CEILING))
