"""Plots of one class as SVG: lines in a square frame, from 0 to 1 along both axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from hilum.evaluate.measures import ClassResult

_SIDE: Final = 180
_MARGIN: Final = 30
_BOX: Final = _SIDE + 2 * _MARGIN
Points = Sequence[tuple[float, float]]


def roc_plot(item: ClassResult) -> Markup:
    """Return the ROC curve with the thresholds as dots."""
    if item.curves is None:
        return Markup()
    dots = "".join(
        _dot(1 - each.specificity.value, each.sensitivity.value, each.name)
        for each in item.thresholds
    )
    inside = _guide((0, 0), (1, 1)) + _line(item.curves.roc) + dots
    return _frame(inside, "1 - specificity", "sensitivity", f"ROC of {item.name}")


def precision_plot(item: ClassResult) -> Markup:
    """Return the precision-recall curve; the guide is the share of positives."""
    if item.curves is None:
        return Markup()
    share = item.positives / (item.positives + item.negatives)
    inside = _guide((0, share), (1, share)) + _line(item.curves.precision_recall)
    return _frame(inside, "recall", "precision", f"Precision and recall of {item.name}")


def reliability_plot(item: ClassResult) -> Markup:
    """Return the share of positives by score, with a dot for each tenth that has cases."""
    if item.reliability is None:
        return Markup()
    bins = item.reliability.bins
    points = [(each.score, each.positive) for each in bins]
    dots = "".join(_dot(each.score, each.positive, f"{each.cases} cases") for each in bins)
    inside = _guide((0, 0), (1, 1)) + _line(points) + dots
    return _frame(inside, "mean score", "share positive", f"Reliability of {item.name}")


def histogram_plot(item: ClassResult) -> Markup:
    """Return the scores of positive and negative cases, each as shares of its class."""
    if item.curves is None:
        return Markup()
    bars = item.curves.histogram
    shares = [
        (one / max(1, item.positives), other / max(1, item.negatives)) for _, one, other in bars
    ]
    most = max(max(pair) for pair in shares)
    inside = _bars(shares, most)
    ends = (bars[0][0], bars[-1][0] + (bars[1][0] - bars[0][0]))
    return _frame(inside, "score", "share of its class", f"Scores of {item.name}", ends, most)


def _bars(shares: Points, most: float) -> str:
    width = 1 / len(shares)
    return "".join(
        _bar(place * width, width / 2, other / most, "negative")
        + _bar((place + 0.5) * width, width / 2, one / most, "positive")
        for place, (one, other) in enumerate(shares)
    )


def _frame(
    inside: str,
    across: str,
    up: str,
    name: str,
    ends: tuple[float, float] = (0, 1),
    highest: float = 1,
) -> Markup:
    frame = Markup(
        '<svg viewBox="0 0 {box} {box}" role="img" aria-label="{name}">'
        '<rect class="frame" x="{m}" y="{m}" width="{s}" height="{s}"/>'
    ).format(box=_BOX, name=name, m=_MARGIN, s=_SIDE)
    labels = Markup(
        '<text x="{middle}" y="{bottom}" text-anchor="middle">{across}</text>'
        '<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{up}</text>'
        '<text x="{m}" y="{below}" text-anchor="middle">{first}</text>'
        '<text x="{right}" y="{below}" text-anchor="middle">{last}</text>'
        '<text x="{left}" y="{top}" text-anchor="end">{highest}</text>'
        '<text x="{left}" y="{base}" text-anchor="end">0</text></svg>'
    ).format(
        middle=_BOX / 2,
        bottom=_BOX - 4,
        across=across,
        up=up,
        m=_MARGIN,
        below=_BOX - _MARGIN + 12,
        first=f"{ends[0]:.3g}",
        right=_BOX - _MARGIN,
        last=f"{ends[1]:.3g}",
        left=_MARGIN - 3,
        top=_MARGIN + 8,
        highest=f"{highest:.2g}",
        base=_BOX - _MARGIN,
    )
    return frame + Markup(inside) + labels  # noqa: S704 - numbers and names of ours


def _line(points: Points) -> str:
    if not points:
        return ""
    path = "L".join(f"{_x(across):.1f} {_y(up):.1f}" for across, up in points)
    return f'<path class="curve" d="M{path}"/>'


def _guide(first: tuple[float, float], last: tuple[float, float]) -> str:
    return f'<path class="guide" d="M{_x(first[0])} {_y(first[1])}L{_x(last[0])} {_y(last[1])}"/>'


def _dot(across: float, up: float, name: str) -> str:
    title = Markup("<title>{}</title>").format(name)
    return f'<circle cx="{_x(across):.1f}" cy="{_y(up):.1f}" r="3">{title}</circle>'


def _bar(left: float, width: float, height: float, name: str) -> str:
    return (
        f'<rect class="{name}" x="{_x(left):.1f}" y="{_y(height):.1f}"'
        f' width="{width * _SIDE:.1f}" height="{height * _SIDE:.1f}"/>'
    )


def _x(share: float) -> float:
    return _MARGIN + share * _SIDE


def _y(share: float) -> float:
    return _MARGIN + (1 - share) * _SIDE
