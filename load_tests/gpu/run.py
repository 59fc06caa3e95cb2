"""`make gpu-proof`: the GPU gives the CPU's numbers, and how fast. docs/figures/gpu.md.

    python3 -m load_tests.gpu.run --out DIR [--device cuda] [--quick] [PART …]

It installs nothing and asks no network: pictures and weights are drawn. With PYTHONPATH set to the
checkout and to its folders `preprocessing` and `server` it runs on the Python of the system; torch
and numpy are enough for most parts. A part that lacks something says what, and the others run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from load_tests.gpu.outcome import GpuOutcome, GpuPlan, verdict
from load_tests.gpu.parts import PARTS, write_plan
from load_tests.gpu.surroundings import surroundings
from load_tests.load import command_line

RESULT: Final = "gpu-proof.json"
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_ROOTS: Final = (_REPOSITORY, _REPOSITORY / "preprocessing", _REPOSITORY / "server")
_LAST_LINES: Final = 8


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 a goal or a part is broken, 2 no part could run here."""
    options = _parsed(words)
    options.out.mkdir(parents=True, exist_ok=True)
    around = {**surroundings(), "device": options.device, "is_quick": options.quick}
    outcomes: dict[str, GpuOutcome] = {}
    with tempfile.TemporaryDirectory(prefix="hilum-gpu-") as folder:
        plan = _plan(options, Path(folder))
        for name in options.parts or PARTS:
            began = time.monotonic()
            outcomes[name] = in_a_process(name, plan, options.limit)
            _say(name, outcomes[name], time.monotonic() - began)
            _write(options.out / RESULT, as_json(outcomes, around))  # a later part may be cut off
    print(f"result: {options.out / RESULT}")
    return verdict(outcomes)


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line.parser("load_tests.gpu.run", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; none: all")
    parser.add_argument("--out", type=Path, required=True, help=f"folder for {RESULT}")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="whether it runs, no figures to keep")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate (%(default)s)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a part (%(default)s)")
    options = parser.parse_args(words)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.device.partition(":")[0] not in ("cpu", "cuda"):
        parser.error(f"no device {options.device!r}: cuda, cuda:1 or cpu")
    return options


def _plan(options: argparse.Namespace, folder: Path) -> GpuPlan:
    if options.quick:
        return GpuPlan.quick(options.device, folder)
    return GpuPlan(options.device, folder, seconds=options.seconds)


def in_a_process(name: str, plan: GpuPlan, limit: float) -> GpuOutcome:
    """Run the part; one that breaks or takes longer than `limit` seconds is a failure."""
    if obstacle := PARTS[name].obstacle():
        return GpuOutcome(left_out=obstacle)
    plan_file = plan.folder / "plan.json"
    result = plan.folder / f"{name}.json"
    write_plan(plan, plan_file)
    command = [sys.executable, "-m", "load_tests.gpu.parts", name, str(plan_file), str(result)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": _path()},
            stdout=sys.stderr,
            stderr=subprocess.PIPE,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return GpuOutcome(failure=f"not done after {limit:.0f} s")
    if done.returncode:
        return GpuOutcome(failure=_ended(done.returncode, done.stderr))
    return GpuOutcome.read(result)


def _path() -> str:
    """Return the roots of the checkout before what the caller has set."""
    return os.pathsep.join([*map(str, _ROOTS), *filter(None, [os.environ.get("PYTHONPATH")])])


def _ended(status: int, said: str) -> str:
    lines = said.strip().splitlines()[-_LAST_LINES:]
    return "\n".join([f"ended with {status}", *lines])


def as_json(outcomes: Mapping[str, GpuOutcome], around: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result: `parts` by name, and the goals of all of them."""
    return {
        "what": "the GPU beside the CPU of the same machine, and rates on it",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        "parts": {name: outcome.as_json() for name, outcome in outcomes.items()},
        "goals": [goal.as_json() for found in outcomes.values() for goal in found.goals],
    }


def _say(name: str, outcome: GpuOutcome, seconds: float) -> None:
    """For a person, 80 columns but for what a program has said."""
    if outcome.left_out:
        print(f"{name}: left out: {outcome.left_out}", flush=True)
        return
    state = f"broken: {outcome.failure}" if outcome.failure else f"{seconds:.0f} s"
    print(f"{name}: {state}", flush=True)
    for goal in outcome.goals:
        bound = f"{'<=' if goal.at_most else '>='} {goal.goal:g}"
        value = f"{goal.value:.3g}" if math.isfinite(goal.value) else "none"
        held = "holds " if goal.holds else "BROKEN"
        print(f"  {held} {goal.name}: {value} {goal.unit} ({bound})", flush=True)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
