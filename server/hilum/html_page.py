"""Templates of HTML, and the frame of a square plot as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from jinja2 import BaseLoader, Environment, StrictUndefined
from markupsafe import Markup

_MARGIN = 30  # around a plot, in CSS pixels


def environment(loader: BaseLoader, filters: Mapping[str, Callable[..., object]]) -> Environment:
    """Return the environment of templates: values are escaped, and an unknown name is an error."""
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters)
    return made


@dataclass(frozen=True, slots=True)
class PlotLabels:
    """The words around a plot: its axes, and the values at their ends."""

    across: str
    up: str
    left: str = "0"
    right: str = "1"
    lowest: str = "0"
    highest: str = "1"


@dataclass(frozen=True, slots=True)
class SquarePlot:
    """A plot with a frame of `side` CSS pixels; both axes go from 0 to 1."""

    side: int

    def x(self, share: float) -> float:
        """Return the place on the axis across."""
        return _MARGIN + share * self.side

    def y(self, share: float) -> float:
        """Return the place on the axis up."""
        return _MARGIN + (1 - share) * self.side

    def line(self, kind: str, points: Iterable[tuple[float, float]]) -> str:
        """Return a path of this class through points (across, up)."""
        path = "L".join(f"{self.x(across):.1f} {self.y(up):.1f}" for across, up in points)
        return f'<path class="{kind}" d="M{path}"/>'

    def drawn(self, name: str, labels: PlotLabels, inside: str) -> Markup:
        """Return the SVG. `inside`: markup of ours, its texts escaped."""
        box = self.side + 2 * _MARGIN
        frame = Markup(
            '<svg viewBox="0 0 {box} {box}" role="img" aria-label="{name}">'
            '<rect class="frame" x="{m}" y="{m}" width="{s}" height="{s}"/>'
        ).format(box=box, name=name, m=_MARGIN, s=self.side)
        words = Markup(
            '<text x="{middle}" y="{bottom}" text-anchor="middle">{across}</text>'
            '<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{up}</text>'
            '<text x="{m}" y="{below}" text-anchor="middle">{first}</text>'
            '<text x="{right}" y="{below}" text-anchor="middle">{last}</text>'
            '<text x="{left}" y="{top}" text-anchor="end">{highest}</text>'
            '<text x="{left}" y="{base}" text-anchor="end">{lowest}</text></svg>'
        ).format(
            middle=box / 2,
            bottom=box - 5,
            across=labels.across,
            up=labels.up,
            m=_MARGIN,
            below=box - _MARGIN + 12,
            first=labels.left,
            right=box - _MARGIN,
            last=labels.right,
            left=_MARGIN - 3,
            top=_MARGIN + 8,
            highest=labels.highest,
            base=box - _MARGIN,
            lowest=labels.lowest,
        )
        return frame + Markup(inside) + words  # noqa: S704 - by contract
