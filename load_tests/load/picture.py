"""A run as a picture: rates, latencies, queues and memory over time, as PNG and as a page that needs nothing else."""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from load_tests.load.outcome import Outcome

_SIZE_INCHES = (11, 9)
_BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "fontsize": 8}
_STYLE = """body { font: 15px/1.4 sans-serif; margin: 2em auto; max-width: 72em } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; margin: 1em 0 } td, th { border: 1px solid #ccc; padding: .2em .6em; text-align: left }"""


def write(path: Path, found: Outcome, content: dict[str, Any]) -> None:
    """`<result>.png` and `<result>.html` beside the result file."""
    figure = draw(found, content)
    figure.savefig(path.with_suffix(".png"), dpi=110)
    vector = io.StringIO()
    figure.savefig(vector, format="svg")
    path.with_suffix(".html").write_text(page(vector.getvalue(), found, content), encoding="utf-8")


def draw(found: Outcome, content: dict[str, Any]) -> Figure:
    """Four panels over the same seconds."""
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    rates, latencies, queues, memory = figure.subplots(4, 1, sharex=True)
    _rates(rates, content)
    _latencies(latencies, found)
    _queues(queues, content)
    _memory(memory, content)
    memory.set_xlabel("seconds since the load began")
    for axes in (rates, latencies, queues, memory):
        axes.axvline(
            found.loaded.ended_at - found.loaded.begin, color="grey", linestyle=":", linewidth=1
        )
        axes.grid(alpha=0.3)
    figure.suptitle(
        textwrap.fill(f"{found.scenario.name}: {found.scenario.shows}", 110), fontsize=11
    )
    return figure


def page(vector: str, found: Outcome, content: dict[str, Any]) -> str:
    """One HTML file: goals, percentiles, the picture, circumstances.

    Nothing is loaded from anywhere.
    """
    goals = [
        (
            ("holds" if goal.holds else "BROKEN"),
            goal.name,
            f"{goal.value:.4g}",
            goal.unit,
            f"{goal.goal:g}",
        )
        for goal in found.goals
    ]
    seconds = [
        (name, *(f"{value:.3f}" for value in row.values()))
        for name, row in content["seconds"].items()
    ]
    stages = [
        (name, *(f"{value:.4g}" for value in row.values()))
        for name, row in content["stages"].items()
    ]
    machine = [
        (name, str(value))
        for name, value in {
            **content["machine"],
            "commit": content["commit"],
            **content["versions"],
        }.items()
    ]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>load: {_safe(found.scenario.name)}</title>
<style>{_STYLE}</style></head><body>
<h1>{_safe(found.scenario.name)}</h1><p>{_safe(found.scenario.shows)} Measured {_safe(content["measured_at"])}.</p>
{_table(("", "goal", "value", "unit", "bound"), goals)}
{vector[vector.index("<svg") :]}
{_table(("seconds", "p50", "p90", "p95", "p99", "max"), seconds)}
{_table(("stage, by Hilum's own metrics", "items", "mean s", "p50 s", "p99 s"), stages)}
{_table(("circumstance", ""), machine)}
</body></html>
"""


def _rates(axes: Axes, content: dict[str, Any]) -> None:
    for name, style in (("offered", "--"), ("accepted", "-"), ("reported", "-")):
        axes.step(
            range(len(content["per_second"][name])),
            content["per_second"][name],
            style,
            where="post",
            label=name,
            linewidth=1.2,
        )
    axes.set_ylabel("studies/s")
    axes.legend(**_BESIDE)


def _latencies(axes: Axes, found: Outcome) -> None:
    """One point a study, at its intended start."""
    begin = found.loaded.begin
    first_after = found.arrivals.first_after
    points = [
        (
            study.intended_at - begin,
            at - study.ended_at - found.quiet_seconds,
            at - study.intended_at - found.quiet_seconds,
        )
        for study in found.loaded.sent
        if study.failure is None
        and (at := first_after(study.study_instance_uid, study.ended_at)) is not None
    ]
    moments = [point[0] for point in points]
    axes.plot(
        moments,
        [point[2] for point in points],
        ".",
        markersize=3,
        color="tab:orange",
        label="intended start to SR",
    )
    axes.plot(
        moments,
        [point[1] for point in points],
        ".",
        markersize=3,
        color="tab:blue",
        label="last image to SR",
    )
    axes.set_ylabel("s beyond the\nquiet period")
    axes.set_ylim(bottom=0)
    axes.legend(**_BESIDE)


def _queues(axes: Axes, content: dict[str, Any]) -> None:
    samples = [sample for sample in content["samples"] if sample["queues"]]
    busy = [name for name, length in content["queues"].items() if length["max"] > 0]
    for name in busy:
        axes.plot(
            [sample["second"] for sample in samples],
            [sample["queues"].get(name, 0) for sample in samples],
            label=name,
            linewidth=1.2,
        )
    axes.set_ylabel("open items")
    if busy:
        axes.legend(**_BESIDE)


def _memory(axes: Axes, content: dict[str, Any]) -> None:
    samples = content["samples"]
    roles = sorted({role for sample in samples for role in sample["memory_mib"]})
    sizes = [[sample["memory_mib"].get(role, 0.0) for sample in samples] for role in roles]
    if roles:
        axes.stackplot([sample["second"] for sample in samples], sizes, labels=roles, alpha=0.8)
        axes.legend(**_BESIDE)
    axes.set_ylabel("MiB resident")


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{_safe(cell)}</th>" for cell in heading)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _safe(text: str) -> str:
    return html.escape(text)
