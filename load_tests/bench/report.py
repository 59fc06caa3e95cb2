"""CPU of the documents of a result.

The template beside the reference builder, in turns, so that both have the machine in the same
moods.

    python -m load_tests.bench.report [--rounds 15] [--result load_tests/results/bench-report.json]

A study of two images with fourteen findings. Figures are CPU of one thread, the least of all rounds
and the median. The ratio is that of the medians. A busy machine makes all of them larger: caches
are shared.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from hilum.domain import SR_CLASS_PREFERENCE
from hilum.report import build_documents, build_report, compile_template, derive
from hilum.report.json_report import json_report
from hilum.report.sources import Extracts
from load_tests.bench.report_job import CONTEXT, claimed, pictures, release_with
from load_tests.load.measure import Goal, circumstances
from testing.serving import REPOSITORY

_FINDINGS = 14
_RESULT = REPOSITORY / "load_tests" / "results" / "bench-report.json"
_REFERENCE = "SR, reference builder"
_TEMPLATE = "SR, template"
_JSON = "JSON beside an SR"
Step = tuple[Callable[[], object], int]


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 some do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--result", type=Path, default=_RESULT)
    asked = parser.parse_args(words)
    before = circumstances()
    with tempfile.TemporaryDirectory() as folder:
        seconds = measured(steps(Path(folder)), asked.rounds)
    found = goals(seconds)
    show(seconds, found)
    asked.result.write_text(
        json.dumps(as_json(seconds, found, before), indent=1) + "\n", encoding="utf-8"
    )
    return 0 if all(goal.holds for goal in found) else 1


def steps(folder: Path) -> dict[str, Step]:
    """What is measured, and how often in a round."""
    release = release_with(_FINDINGS)
    job, images = claimed(release)
    began = time.process_time()
    template = compile_template(release, CONTEXT)
    print(f"template of {release.id} compiled in {time.process_time() - began:.2f} s of CPU")
    assert template is not None
    sources = pictures(images, release, folder)
    (report,) = build_documents(job, release, CONTEXT, ("sr",))
    extracts = Extracts(job)
    read = extracts.reported()
    written = build_documents(job, release, CONTEXT, ("sr",), template=template)
    assert written == [report]
    return {
        _REFERENCE: (lambda: build_documents(job, release, CONTEXT, ("sr",)), 1),
        _TEMPLATE: (lambda: build_documents(job, release, CONTEXT, ("sr",), template=template), 20),
        "  reading the headers": (lambda: Extracts(job).reported(), 20),
        "  filling the template": (lambda: template.fill(job.result, read, (), None), 20),
        "SR and JSON, template": (
            lambda: build_documents(job, release, CONTEXT, ("sr", "json"), template=template),
            20,
        ),
        _JSON: (lambda: json_report(job, release, CONTEXT, None, extracts), 20),
        "JSON alone, header read for it": (
            lambda: build_documents(job, release, CONTEXT, ("json",)),
            20,
        ),
        "all with heat map, template": (
            lambda: build_report(
                job, release, CONTEXT, ("sr", "json", "heatmap"), sources, template
            ),
            1,
        ),
        **{
            f"derive {item.name}": (partial(derive, report, item, "2.25.1"), 3)
            for item in SR_CLASS_PREFERENCE[1:]
        },
    }


def measured(wanted: Mapping[str, Step], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each step, one value a round."""
    seconds: dict[str, list[float]] = {name: [] for name in wanted}
    gc.collect()
    for _ in range(rounds):
        for name, (run, times) in wanted.items():
            began = time.process_time()
            for _ in range(times):
                run()
            seconds[name].append((time.process_time() - began) / times)
    return seconds


def goals(seconds: Mapping[str, Sequence[float]]) -> list[Goal]:
    """Those of the issue."""
    fast = seconds[_TEMPLATE]
    slow = seconds[_REFERENCE]
    return [
        Goal(
            "template against reference",
            statistics.median(slow) / statistics.median(fast),
            "times",
            100,
            at_most=False,
        ),
        Goal(
            "SRs a second and core, header reading included",
            1 / statistics.median(fast),
            "SRs/s",
            400,
            at_most=False,
        ),
        Goal(_JSON, 1000 * statistics.median(seconds[_JSON]), "ms", 0.3),
    ]


def show(seconds: Mapping[str, Sequence[float]], found: Sequence[Goal]) -> None:
    """For a person, 80 columns at most."""
    print(f"\n{'ms of CPU':32}{'least':>10}{'median':>10}{'1/median':>12}")
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:32}{1000 * min(values):10.3f}{1000 * median:10.3f}{1 / median:10.0f}/s")
    print()
    for goal in found:
        bound = f"{'<=' if goal.at_most else '>='} {goal.goal:g}"
        print(
            f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.3g} {goal.unit} ({bound})"[
                :80
            ]
        )


def as_json(
    seconds: Mapping[str, Sequence[float]], found: Sequence[Goal], before: Mapping[str, Any]
) -> dict[str, Any]:
    """The result file."""
    return {
        "what": (
            "CPU of the documents of a result of two images and fourteen findings, milliseconds of"
            " one thread"
        ),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **before,
        "milliseconds": {
            name.strip(): {
                "least": round(1000 * min(values), 3),
                "median": round(1000 * statistics.median(values), 3),
            }
            for name, values in seconds.items()
        },
        "rounds": len(seconds[_TEMPLATE]),
        "goals": [goal.as_json() for goal in found],
    }


if __name__ == "__main__":
    sys.exit(main())
