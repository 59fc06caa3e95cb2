"""TensorRT plans of the bundled networks, as docs/models/profiles.md has them built, and their rate.

`hilum models build --profile tensorrt`, then deploy/tensorrt/build_plans.py, which compares each
plan with the recorded logits; then trtexec's own rate by batch.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hilum.models.build import build
from hilum.models.manifest import catalogue
from load_tests.gpu.outcome import GpuOutcome, GpuPlan
from load_tests.gpu.served import MANIFESTS, RELEASES
from load_tests.load.figures import Goal
from load_tests.load.machine import REPOSITORY

_SCRIPT: Final = REPOSITORY / "deploy/tensorrt/build_plans.py"
_NGC: Final = "/usr/src/tensorrt/bin/trtexec"
_RATE: Final = re.compile(r"Throughput: ([0-9.]+) qps")
_SHOWN: Final = 400


def measure(plan: GpuPlan) -> GpuOutcome:
    """Return each plan's precision and difference, and images a second by batch."""
    if not plan.device.startswith("cuda"):
        return GpuOutcome(left_out=f"TensorRT needs a GPU, not the device {plan.device}")
    tool = shutil.which("trtexec") or (_NGC if Path(_NGC).is_file() else None)
    if tool is None:
        return GpuOutcome(left_out=f"no trtexec in PATH or at {_NGC}; run in NGC's image")
    return with_trtexec(plan, tool)


def with_trtexec(plan: GpuPlan, tool: str, manifests: Path = MANIFESTS) -> GpuOutcome:
    """Build the trees and their plans by this trtexec."""
    built = plan.folder / "plans"
    wanted = [RELEASES.get(name, name) for name in plan.networks]
    build.build(wanted, manifests, built, "tensorrt")
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), "build", str(built / "tensorrt"), "--trtexec", tool],
        capture_output=True,
        text=True,
        check=False,
    )
    releases = catalogue.load_catalogue(manifests)
    trees = [build.tree_of(releases[name], built, "tensorrt") for name in wanted]
    rows = [_row(tree, tool, plan.batches) for tree in trees]
    said = (done.stdout + done.stderr).strip()[-_SHOWN:]
    return GpuOutcome({"plans": rows, "build_plans": said}, tuple(goals(rows)))


def _row(tree: Path, tool: str, batches: Sequence[int]) -> dict[str, Any]:
    """Return the record of the tree's plan, and its rates; no rates where there is no plan."""
    record = tree / "1/plan.json"
    if not record.is_file():
        return {"network": tree.name, "has_plan": False, "images_per_second": {}}
    facts: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    request = json.loads((tree / "request.json").read_text(encoding="utf-8"))
    largest, *image = request["optimization_profile"]["max"]
    sizes = [size for size in batches if size <= largest]
    return {
        "network": tree.name,
        "has_plan": True,
        **{name: facts[name] for name in ("precision", "largest_difference", "tensorrt")},
        "images_per_second": {str(size): _rate(tree, tool, [size, *image]) for size in sizes},
    }


def _rate(tree: Path, tool: str, shape: Sequence[int]) -> float | None:
    """Return images a second with the transfers; None where trtexec states none."""
    command = [
        tool,
        f"--loadEngine={tree / '1/model.plan'}",
        f"--shapes=image:{'x'.join(map(str, shape))}",
        "--useCudaGraph",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return stated_rate(done.stdout, shape[0]) if done.returncode == 0 else None


def stated_rate(said: str, batch: int) -> float | None:
    """Return images a second from trtexec's output, whose queries are whole batches."""
    found = _RATE.search(said)
    return float(found.group(1)) * batch if found else None


def goals(rows: Sequence[Mapping[str, Any]]) -> Iterator[Goal]:
    """Yield one: build_plans.py keeps a plan only within the release's tolerance."""
    yield Goal("networks without a plan", sum(not row["has_plan"] for row in rows), "networks", 0)
