"""How much a part of the proof measures, and what it hands back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from load_tests.load.figures import Goal

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
NETWORKS: Final = ("densenet121", "vit_b16")
PRECISIONS: Final = ("f32", "fp16")
_QUICK_RECIPES: Final = ("torchxrayvision_224", "chexpert_320", "vit_imagenet_half_224")


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """Where and how long.

    `device` as torch writes it: cpu, cuda or cuda:1. `seconds` of each rate. `picture` (rows,
    columns) of the images that are uploaded. `recipes`: none named, all of them. `folder`: for what a part builds.
    """

    device: str
    folder: Path
    seconds: float = 4.0
    turns: int = 5
    picture: tuple[int, int] = (2500, 2048)
    batches: Sequence[int] = BATCHES
    networks: Sequence[str] = NETWORKS
    precisions: Sequence[str] = PRECISIONS
    recipes: Sequence[str] = ()
    is_quick: bool = False

    @property
    def judges_rates(self) -> bool:
        """Whether rates are held against goals: those of a CPU say nothing of a GPU."""
        return self.device.startswith("cuda")

    @classmethod
    def quick(cls, device: str, folder: Path) -> Self:
        """Whether it runs, no figures to keep."""
        return cls(
            device,
            folder,
            seconds=0.2,
            turns=1,
            picture=(500, 400),
            batches=(1, 2),
            networks=NETWORKS[:1],
            precisions=PRECISIONS[:1],
            recipes=_QUICK_RECIPES,
            is_quick=True,
        )


@dataclass(frozen=True, slots=True)
class GpuOutcome:
    """Figures and goals of a part, or why it did not run.

    `left_out`: it needs something that is not here. `failure`: it began and broke. At most one of
    them is not empty.
    """

    figures: Mapping[str, Any] = field(default_factory=dict)
    goals: Sequence[Goal] = ()
    left_out: str = ""
    failure: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether the part did not break and every goal holds."""
        return not self.failure and all(goal.holds for goal in self.goals)

    def as_json(self) -> dict[str, Any]:
        """Its section of the result."""
        return {
            "left_out": self.left_out or None,
            "failure": self.failure or None,
            "figures": dict(self.figures),
            "goals": [goal.as_json() for goal in self.goals],
        }

    def write(self, path: Path) -> None:
        """Hand it to the process that asked for it."""
        path.write_text(json.dumps(self.as_json()), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what `write` wrote. Raises OSError or ValueError where it did not."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            content["figures"],
            tuple(_goal(goal) for goal in content["goals"]),
            content["left_out"] or "",
            content["failure"] or "",
        )


def _goal(written: Mapping[str, Any]) -> Goal:
    value = float("nan") if written["value"] is None else written["value"]
    return Goal(written["name"], value, written["unit"], written["goal"], written["at_most"])


def verdict(outcomes: Mapping[str, GpuOutcome]) -> int:
    """Exit code.

    0: at least one part ran, and every goal holds. 1: a goal is broken, or a part. 2: no part
    could run here, so nothing is proved.
    """
    if not all(outcome.is_kept for outcome in outcomes.values()):
        return 1
    return 2 if all(outcome.left_out for outcome in outcomes.values()) else 0
