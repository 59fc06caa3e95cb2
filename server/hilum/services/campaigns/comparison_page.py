"""The comparison as one HTML file, with plots as SVG: nothing is loaded from anywhere."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hilum.assemble.pair_statistics import BINS, Interval, PairSummary
from hilum.services.campaigns.comparison import Comparison

_SIDE: Final = 200  # of a plot, in CSS pixels
_MARGIN: Final = 30
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
    environment = Environment(
        loader=PackageLoader("hilum.services.campaigns", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["interval"] = _interval
    environment.filters["p"] = _p
    environment.filters["scatter"] = scatter
    environment.filters["bland_altman"] = bland_altman
    return environment


def _interval(value: Interval) -> str:
    if value.value is None:
        return "none: one class alone"
    return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"


def _p(value: float | None) -> str:
    if value is None:
        return "none"
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


@dataclass(frozen=True, slots=True)
class _Axes:
    """The frame of a plot: its labels, and the values at the ends of the vertical axis."""

    across: str
    up: str
    lowest: float
    highest: float


def scatter(item: PairSummary, first: str, second: str) -> Markup:
    """Return the scores of both releases as a picture, a square for each bin with studies."""
    diagonal = f'<path class="guide" d="M{_x(0)} {_y(0)}L{_x(1)} {_y(1)}"/>'
    axes = _Axes(f"score of {first}", f"score of {second}", 0, 1)
    return _plot(item.bins, axes, diagonal, f"Scores of {item.finding}")


def bland_altman(item: PairSummary, first: str, second: str) -> Markup:
    """Return the difference of the scores over their mean, with the limits of agreement."""
    marks = [(item.difference, "mark"), (item.limits[0], "guide"), (item.limits[1], "guide")]
    lines = "".join(
        f'<path class="{name}" d="M{_x(0)} {_y((value + 1) / 2)}L{_x(1)} {_y((value + 1) / 2)}"/>'
        for value, name in marks
        if -1 <= value <= 1
    )
    axes = _Axes("mean score", f"{second} minus {first}", -1, 1)
    return _plot(item.spread, axes, lines, f"Differences of {item.finding}")


def _plot(bins: Mapping[tuple[int, int], int], axes: _Axes, over: str, name: str) -> Markup:
    most = max(bins.values(), default=1)
    size = _SIDE / BINS
    squares = "".join(
        f'<rect x="{_x(column / BINS):.1f}" y="{_y((row + 1) / BINS):.1f}" width="{size:.1f}"'
        f' height="{size:.1f}" fill-opacity="{_shade(count, most):.2f}">'
        f"<title>{count} studies</title></rect>"
        for (column, row), count in sorted(bins.items())
    )
    box = _SIDE + 2 * _MARGIN
    frame = Markup(
        '<svg viewBox="0 0 {box} {box}" role="img" aria-label="{name}">'
        '<rect class="frame" x="{m}" y="{m}" width="{s}" height="{s}"/>'
    ).format(box=box, name=name, m=_MARGIN, s=_SIDE)
    labels = Markup(
        '<text x="{middle}" y="{bottom}" text-anchor="middle">{across}</text>'
        '<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{up}</text>'
        '<text x="{m}" y="{below}" text-anchor="middle">0</text>'
        '<text x="{right}" y="{below}" text-anchor="middle">1</text>'
        '<text x="{left}" y="{top}" text-anchor="end">{highest}</text>'
        '<text x="{left}" y="{base}" text-anchor="end">{lowest}</text></svg>'
    ).format(
        middle=box / 2,
        bottom=box - 6,
        across=axes.across,
        up=axes.up,
        m=_MARGIN,
        below=box - _MARGIN + 13,
        right=box - _MARGIN,
        left=_MARGIN - 3,
        top=_MARGIN + 8,
        highest=f"{axes.highest:g}",
        base=box - _MARGIN,
        lowest=f"{axes.lowest:g}",
    )
    return frame + Markup(squares + over) + labels  # noqa: S704 - numbers and names of ours


def _shade(count: int, most: int) -> float:
    """Return the opacity of a bin, by the logarithm of its studies."""
    return _FAINTEST + (1 - _FAINTEST) * math.log1p(count) / math.log1p(most)


def _x(share: float) -> float:
    return _MARGIN + share * _SIDE


def _y(share: float) -> float:
    return _MARGIN + (1 - share) * _SIDE
