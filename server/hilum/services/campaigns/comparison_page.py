"""The comparison as one HTML file, with plots as SVG: nothing is loaded from anywhere."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Final

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from hilum.assemble.pair_statistics import BINS, Interval, PairSummary
from hilum.html_page import PlotLabels, SquarePlot, environment
from hilum.services.campaigns.comparison import Comparison

_PLOT: Final = SquarePlot(200)
_FAINTEST: Final = 0.12
_LISTED: Final = 100


def page(found: Comparison, title: str, made_at: str) -> str:
    """Return the HTML. `title`: the set of studies; `made_at`: the moment, for people."""
    template = _environment().get_template("comparison.html")
    return template.render(
        found=found,
        title=title,
        made_at=made_at,
        listed=found.discrepancies[:_LISTED],
    )


@functools.cache
def _environment() -> Environment:
    return environment(
        PackageLoader("hilum.services.campaigns", "templates"),
        {"interval": _interval, "p": _p, "scatter": scatter, "bland_altman": bland_altman},
    )


def _interval(value: Interval) -> str:
    if value.value is None:
        return "none: one class alone"
    return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"


def _p(value: float | None) -> str:
    if value is None:
        return "none"
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def scatter(item: PairSummary, first: str, second: str) -> Markup:
    """Return the scores of both releases as a picture, a square for each bin with studies."""
    diagonal = _PLOT.line("guide", [(0, 0), (1, 1)])
    labels = PlotLabels(f"score of {first}", f"score of {second}")
    return _plot(item.bins, labels, diagonal, f"Scores of {item.finding}")


def bland_altman(item: PairSummary, first: str, second: str) -> Markup:
    """Return the difference of the scores over their mean, with the limits of agreement."""
    marks = [(item.difference, "mark"), (item.limits[0], "guide"), (item.limits[1], "guide")]
    lines = "".join(
        _PLOT.line(name, [(0, (value + 1) / 2), (1, (value + 1) / 2)])
        for value, name in marks
        if -1 <= value <= 1
    )
    labels = PlotLabels("mean score", f"{second} minus {first}", lowest="-1")
    return _plot(item.spread, labels, lines, f"Differences of {item.finding}")


def _plot(bins: Mapping[tuple[int, int], int], labels: PlotLabels, over: str, name: str) -> Markup:
    most = max(bins.values(), default=1)
    size = _PLOT.side / BINS
    squares = "".join(
        f'<rect x="{_PLOT.x(column / BINS):.1f}" y="{_PLOT.y((row + 1) / BINS):.1f}"'
        f' width="{size:.1f}" height="{size:.1f}" fill-opacity="{_shade(count, most):.2f}">'
        f"<title>{count} studies</title></rect>"
        for (column, row), count in sorted(bins.items())
    )
    return _PLOT.drawn(name, labels, squares + over)


def _shade(count: int, most: int) -> float:
    """Return the opacity of a bin, by the logarithm of its studies."""
    return _FAINTEST + (1 - _FAINTEST) * math.log1p(count) / math.log1p(most)
