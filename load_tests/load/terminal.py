"""A run for a person at a terminal of 80 columns."""

from __future__ import annotations

import textwrap
import time
from collections import Counter

from load_tests.load import scenario
from load_tests.load.measure import percentiles
from load_tests.load.outcome import Outcome
from load_tests.load.watch import mean_queues
from testing.accounting import total

_WIDTH = 80


def say(text: str) -> None:
    """Progress, with the time."""
    print(f"{time.strftime('%H:%M:%S')}  {text}"[:_WIDTH], flush=True)


def show_scenarios() -> None:
    """Names, and what each shows."""
    for name in scenario.names():
        print(
            textwrap.fill(
                f"{name:12}{scenario.read(name).shows}", _WIDTH, subsequent_indent=" " * 12
            )
        )


def show(found: Outcome) -> None:
    """Counts, latencies, stages, CPU, goals."""
    ends = found.both_ends
    print(
        f"\n{ends.offered} studies offered, {ends.accepted} accepted, {ends.reported} reported;"
        f" {ends.studies_per_second:.2f} studies/s"
    )
    if (saturation := found.values.get("saturation_studies_per_second")) is not None:
        print(f"saturation {saturation:.2f} studies/s")
    for reason, number in Counter(ends.failures).most_common():
        print(f"  not accepted: {number} x {reason}"[:_WIDTH])
    _show_latencies(found)
    _show_stages(found)
    _show_cpu(found)
    print()
    for goal in found.goals:
        sign = "<=" if goal.at_most else ">="
        print(
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.3g} {goal.unit}"
            f" ({sign} {goal.goal:g})"
        )


def _show_latencies(found: Outcome) -> None:
    ends = found.both_ends
    rows = {
        "last image accepted to SR": ends.last_image_to_sr,
        f"  beyond the quiet period ({found.quiet_seconds:g} s)": found.beyond_quiet,
        "intended start of the study to SR": ends.intended_to_sr,
        "lateness of the sender": ends.late_starts,
    }
    print(f"\n{'seconds':38}{'p50':>8}{'p90':>8}{'p95':>8}{'p99':>8}{'max':>8}")
    for name, values in rows.items():
        print(f"{name:38}" + "".join(f"{value:8.3f}" for value in percentiles(values).values()))


def _show_stages(found: Outcome) -> None:
    stretches = found.stretches()
    if not stretches:
        return
    queues = mean_queues(found.loaded.samples)
    print(
        f"\n{'stage, by its own metrics, seconds':38}{'mean':>8}{'p50':>8}{'p99':>8}{'mean due':>10}"
    )
    for name, stretch in stretches.items():
        due = (
            queues.get(f"{name.partition(':')[0]} due", {}).get("mean")
            if name.endswith("wait")
            else None
        )
        shown = "" if due is None else f"{due:10.1f}"
        print(f"{name:38}{stretch['mean']:8.3f}{stretch['p50']:8.3f}{stretch['p99']:8.3f}{shown}")
    print(f"longest on average: {found.longest('wait')}; {found.longest('work')}")


def _show_cpu(found: Outcome) -> None:
    used = found.loaded.hilum
    if not used:
        return
    studies = max(1, found.both_ends.reported)
    rows = {f"hilum {role}": use.cpu_seconds for role, use in sorted(used.items())} | {
        "hilum, together": total(used).cpu_seconds
    }
    rows |= found.loaded.own_cpu_seconds
    print(f"\n{'CPU':38}{'seconds':>10}{'ms a study':>14}")
    for name, seconds in rows.items():
        print(f"{name:38}{seconds:10.2f}{1000 * seconds / studies:14.1f}")
