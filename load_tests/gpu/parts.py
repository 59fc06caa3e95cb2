"""The parts of the proof by name: what each needs, and what it runs.

A part runs in a process of its own (`python -m load_tests.gpu.parts NAME PLAN RESULT`), so that one
that breaks, or takes the GPU's memory, leaves the others alone.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from load_tests.gpu import absent
from load_tests.gpu.outcome import GpuOutcome, GpuPlan

_TORCH: Final = ("numpy", "torch")
# What `hilum models build` and the client of Triton import.
_SERVER: Final = (
    *_TORCH,
    *absent.UNUSED,
    "onnx",
    "onnxscript",
    "onnxruntime",
    "orjson",
    "prometheus_client",
    "structlog",
    "tritonclient",
    "xxhash",
)


@dataclass(frozen=True, slots=True)
class GpuPart:
    """`module` has a function `measure`. `needs`: packages without which it cannot run."""

    module: str
    needs: Sequence[str]

    def obstacle(self) -> str:
        """Return why it cannot run here; empty: it can, as far as packages go."""
        lacking = absent.missing(self.needs)
        return f"not installed here: {', '.join(lacking)}" if lacking else ""


PARTS: Final[Mapping[str, GpuPart]] = {
    "recipes": GpuPart("load_tests.gpu.recipes", _TORCH),
    "upload": GpuPart("load_tests.gpu.upload", _TORCH),
    "networks": GpuPart("load_tests.gpu.networks", _TORCH),
    "triton": GpuPart("load_tests.gpu.served", _SERVER),
    "tensorrt": GpuPart("load_tests.gpu.plans", _SERVER),
}


def outcome_of(part: GpuPart, plan: GpuPlan) -> GpuOutcome:
    """Run it in this process, or say what it lacks."""
    if obstacle := part.obstacle() or device_obstacle(plan.device):
        return GpuOutcome(left_out=obstacle)
    absent.give_names()
    outcome = importlib.import_module(part.module).measure(plan)
    assert isinstance(outcome, GpuOutcome)
    return outcome


def device_obstacle(device: str) -> str:
    """Return why torch cannot compute there; empty: it can."""
    import torch  # noqa: PLC0415 - the caller has looked whether it is installed

    if not device.startswith("cuda"):
        return ""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device here"
    count = torch.cuda.device_count()
    index = torch.device(device).index or 0
    return "" if index < count else f"there is no {device}: {count} devices are here"


def main(words: Sequence[str]) -> int:
    """Run the named part of the plan in a JSON file, and write its outcome."""
    name, plan_file, result = words
    written = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    plan = GpuPlan(**{**written, "folder": Path(written["folder"])})
    outcome_of(PARTS[name], plan).write(Path(result))
    return 0


def write_plan(plan: GpuPlan, path: Path) -> None:
    """For the process of a part."""
    path.write_text(json.dumps({**asdict(plan), "folder": str(plan.folder)}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
