"""The page of an evaluation: one HTML file that loads nothing from anywhere."""

from __future__ import annotations

import functools

from jinja2 import Environment, PackageLoader, StrictUndefined

from hilum.evaluate.doubts import doubts_of
from hilum.evaluate.evaluation import Evaluation
from hilum.evaluate.measures import Measured
from hilum.evaluate.page import plots


def page(found: Evaluation, made_at: str) -> str:
    """Return the HTML. `made_at`: the moment, for people."""
    template = _environment().get_template("evaluation.html")
    return template.render(found=found, made_at=made_at, doubts=doubts_of(found))


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hilum.evaluate.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["measured"] = measured
    environment.filters["roc"] = plots.roc_plot
    environment.filters["precision"] = plots.precision_plot
    environment.filters["reliability"] = plots.reliability_plot
    environment.filters["histogram"] = plots.histogram_plot
    return environment


def measured(item: Measured | None) -> str:
    """Return a number with its interval, in words where there is none."""
    if item is None:
        return "undefined"
    if item.low is None or item.high is None:
        return f"{item.value:.3f} (no interval)"
    return f"{item.value:.3f} ({item.low:.3f} to {item.high:.3f})"
