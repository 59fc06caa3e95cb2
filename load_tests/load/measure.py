"""From what was sent and what arrived to figures.

Percentiles, and where and with what they were measured.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilum.triton import runtime
from load_tests.load.figures import Goal
from load_tests.load.machine import commit, machine
from testing.network.receiver import Arrivals
from testing.network.sending import Sent

__all__ = ["Figures", "Goal", "circumstances", "figures", "percentiles"]

PERCENTILES = (50, 90, 95, 99)
_DISTRIBUTIONS = (
    "hilum",
    "torch",
    "numpy",
    "openvino",
    "onnxruntime",
    "pydicom",
    "pynetdicom",
    "highdicom",
    "sqlalchemy",
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Both ends of a run compared.

    Latencies in seconds, one a study that has a report; throughput from the first report to the
    last.
    """

    offered: int
    accepted: int
    reported: int
    lost: int
    studies_per_second: float
    last_image_to_sr: tuple[float, ...]
    intended_to_sr: tuple[float, ...]
    late_starts: tuple[float, ...]
    failures: tuple[str, ...]
    repeated: int
    changed: int


def figures(sent: Sequence[Sent], arrivals: Arrivals) -> Figures:
    """A study counts as reported when a report came after its last image was accepted.

    Lost are also reports on parts of a study.
    """
    accepted = [study for study in sent if study.failure is None]
    pairs = [
        (study, arrivals.first_after(study.study_instance_uid, study.ended_at))
        for study in accepted
    ]
    done = [(study, at) for study, at in pairs if at is not None]
    reports = sorted(at for _, at in done)
    return Figures(
        offered=len(sent),
        accepted=len(accepted),
        reported=len(done),
        lost=sum(_is_lost(study, arrivals) for study in sent),
        studies_per_second=(len(reports) - 1) / (reports[-1] - reports[0])
        if len(reports) > 1
        else 0.0,
        last_image_to_sr=tuple(at - study.ended_at for study, at in done),
        intended_to_sr=tuple(at - study.intended_at for study, at in done),
        late_starts=tuple(study.started_at - study.intended_at for study in sent),
        failures=tuple(study.failure for study in sent if study.failure is not None),
        repeated=arrivals.repeated,
        changed=len(arrivals.changed),
    )


def _is_lost(study: Sent, arrivals: Arrivals) -> bool:
    since = study.promised_at
    return since is not None and arrivals.first_after(study.study_instance_uid, since) is None


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p95, p99 and the largest; empty without values."""
    if not values:
        return {}
    return {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES} | {"max": max(values)}


def circumstances() -> dict[str, Any]:
    """Machine, commit and versions."""
    return {
        "machine": machine(),
        **commit(),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _DISTRIBUTIONS},
            **({"nvidia-pytriton": wheel.version} if (wheel := runtime.find()) else {}),
        },
    }
