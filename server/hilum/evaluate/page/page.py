"""The page of an evaluation: one HTML file that loads nothing from anywhere."""

from __future__ import annotations

import functools

from jinja2 import Environment, PackageLoader

from hilum.evaluate.doubts import doubts_of
from hilum.evaluate.evaluation import Evaluation
from hilum.evaluate.measures import Measured
from hilum.evaluate.page import plots
from hilum.html_page import environment


def page(found: Evaluation, made_at: str) -> str:
    """Return the HTML. `made_at`: the moment, for people."""
    template = _environment().get_template("evaluation.html")
    return template.render(found=found, made_at=made_at, doubts=doubts_of(found))


@functools.cache
def _environment() -> Environment:
    return environment(
        PackageLoader("hilum.evaluate.page", "templates"),
        {
            "measured": measured,
            "roc": plots.roc_plot,
            "precision": plots.precision_plot,
            "reliability": plots.reliability_plot,
            "histogram": plots.histogram_plot,
        },
    )


def measured(item: Measured | None) -> str:
    """Return a number with its interval, in words where there is none."""
    if item is None:
        return "undefined"
    if item.low is None or item.high is None:
        return f"{item.value:.3f} (no interval)"
    return f"{item.value:.3f} ({item.low:.3f} to {item.high:.3f})"
