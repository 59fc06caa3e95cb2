"""Plots of one class as SVG: lines in a square frame, from 0 to 1 along both axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from hilum.evaluate.measures import ClassResult
from hilum.html_page import PlotLabels, SquarePlot

_PLOT: Final = SquarePlot(180)
Points = Sequence[tuple[float, float]]


def roc_plot(item: ClassResult) -> Markup:
    """Return the ROC curve with the thresholds as dots."""
    if item.curves is None:
        return Markup()
    dots = "".join(
        _dot(1 - each.specificity.value, each.sensitivity.value, each.name)
        for each in item.thresholds
    )
    inside = _PLOT.line("guide", [(0, 0), (1, 1)]) + _PLOT.line("curve", item.curves.roc) + dots
    return _PLOT.drawn(f"ROC of {item.name}", PlotLabels("1 - specificity", "sensitivity"), inside)


def precision_plot(item: ClassResult) -> Markup:
    """Return the precision-recall curve; the guide is the share of positives."""
    if item.curves is None:
        return Markup()
    share = item.positives / (item.positives + item.negatives)
    inside = _PLOT.line("guide", [(0, share), (1, share)]) + _PLOT.line(
        "curve", item.curves.precision_recall
    )
    labels = PlotLabels("recall", "precision")
    return _PLOT.drawn(f"Precision and recall of {item.name}", labels, inside)


def reliability_plot(item: ClassResult) -> Markup:
    """Return the share of positives by score, with a dot for each tenth that has cases."""
    if item.reliability is None:
        return Markup()
    bins = item.reliability.bins
    points = [(each.score, each.positive) for each in bins]
    dots = "".join(_dot(each.score, each.positive, f"{each.cases} cases") for each in bins)
    inside = (
        _PLOT.line("guide", [(0, 0), (1, 1)])
        + (_PLOT.line("curve", points) if points else "")
        + dots
    )
    labels = PlotLabels("mean score", "share positive")
    return _PLOT.drawn(f"Reliability of {item.name}", labels, inside)


def histogram_plot(item: ClassResult) -> Markup:
    """Return the scores of positive and negative cases, each as shares of its class."""
    if item.curves is None:
        return Markup()
    bars = item.curves.histogram
    shares = [
        (one / max(1, item.positives), other / max(1, item.negatives)) for _, one, other in bars
    ]
    most = max(max(pair) for pair in shares)
    labels = PlotLabels(
        "score",
        "share of its class",
        left=f"{bars[0][0]:.3g}",
        right=f"{bars[-1][0] + (bars[1][0] - bars[0][0]):.3g}",
        highest=f"{most:.2g}",
    )
    return _PLOT.drawn(f"Scores of {item.name}", labels, _bars(shares, most))


def _bars(shares: Points, most: float) -> str:
    width = 1 / len(shares)
    return "".join(
        _bar(place * width, width / 2, other / most, "negative")
        + _bar((place + 0.5) * width, width / 2, one / most, "positive")
        for place, (one, other) in enumerate(shares)
    )


def _dot(across: float, up: float, name: str) -> str:
    title = Markup("<title>{}</title>").format(name)
    return f'<circle cx="{_PLOT.x(across):.1f}" cy="{_PLOT.y(up):.1f}" r="3">{title}</circle>'


def _bar(left: float, width: float, height: float, name: str) -> str:
    return (
        f'<rect class="{name}" x="{_PLOT.x(left):.1f}" y="{_PLOT.y(height):.1f}"'
        f' width="{width * _PLOT.side:.1f}" height="{height * _PLOT.side:.1f}"/>'
    )
