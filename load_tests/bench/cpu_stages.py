"""From counters and process clocks to milliseconds of CPU per image and stage.

Pure; every second of every process is in one row.

A process's CPU is split into what its threads charged to stages, what it also uses when idle, and
the rest. Where a process has one task, the rest is that task's: a listener's rest is receiving, an
analyser's carries batches to Triton and back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

IDLE: Final = "idle polling"
MODEL: Final = "model"
ENGINE: Final = "engine"  # not Hilum's: what the model of a measured tree counts
# Of issue and table, in the order of the street.
STAGES: Final = (
    "receive", "sync", "index", "decode", "prepare", "hop", MODEL, "aggregate", "report", "deliver", "ledger", "REST", "other", IDLE,
)  # fmt: skip
# Those with goals of their own; all others together have one.
APART: Final = frozenset({"receive", "decode", "prepare", MODEL})
# Label of hilum_cpu_seconds_total, or the engine → (role whose threads charge it, stage).
CHARGED: Final[Mapping[str, tuple[str, str]]] = {
    "sync": ("listener", "sync"),
    "index": ("listener", "index"),
    "index_ledger": ("listener", "ledger"),
    ENGINE: ("triton-stub", MODEL),
    "decode": ("decode", "decode"),
    "prepare": ("decode", "prepare"),
    "analyse_ledger": ("analyser", "ledger"),
    "aggregate": ("dispatcher", "aggregate"),
    "assemble_ledger": ("dispatcher", "ledger"),
    "report": ("dispatcher", "report"),
    "report_ledger": ("dispatcher", "ledger"),
    "deliver": ("dispatcher", "deliver"),
    "deliver_ledger": ("dispatcher", "ledger"),
    "compare_ledger": ("dispatcher", "ledger"),
    "commit_ledger": ("dispatcher", "ledger"),
}
# What a role's rest is; of a role that is not named here, it is "other".
_REST: Final[Mapping[str, str]] = {
    "listener": "receive",
    "decode": "decode",
    "analyser": "hop",
    "tritonserver": "hop",
    "triton-stub": "hop",
    "report": "report",
    "api": "REST",
}


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time: CPU seconds by role and by label of `CHARGED`, and batches by their largest possible size.

    `images`: reported on in that time. `generator`: CPU seconds of the sender and the PACS; they are no part of the street.
    """

    seconds: float
    images: int
    roles: Mapping[str, float]
    charged: Mapping[str, float]
    batches: Mapping[float, float] = field(default_factory=dict)
    generator: float = 0.0

    def cores(self) -> float:
        """CPU seconds a second, all roles."""
        return sum(self.roles.values()) / self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds of CPU per image that a stage costs in a role."""

    role: str
    stage: str
    milliseconds: float


def rows(load: Window, idle: Window) -> list[Row]:
    """All of `load`, by role and stage."""
    share = load.seconds / idle.seconds
    found = [
        row
        for role, seconds in load.roles.items()
        for row in _of_role(
            role,
            seconds,
            load.charged,
            idle.roles.get(role, 0.0) * share,
            _scaled(idle.charged, share),
        )
    ]
    return [
        Row(row.role, row.stage, 1000 * row.milliseconds / load.images) for row in _joined(found)
    ]


def _scaled(charged: Mapping[str, float], share: float) -> dict[str, float]:
    return {label: seconds * share for label, seconds in charged.items()}


def _of_role(
    role: str,
    seconds: float,
    charged: Mapping[str, float],
    idle: float,
    idle_charged: Mapping[str, float],
) -> list[Row]:
    """In seconds. What a stage also uses when idle is in the row for idle polling already."""
    own = [(label, stage) for label, (owner, stage) in CHARGED.items() if owner == role]
    at_work = [
        Row(role, stage, charged.get(label, 0.0) - idle_charged.get(label, 0.0))
        for label, stage in own
    ]
    rest = seconds - idle - sum(row.milliseconds for row in at_work)
    return [*at_work, Row(role, _REST.get(role, "other"), rest), Row(role, IDLE, idle)]


def _joined(found: Sequence[Row]) -> list[Row]:
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in found:
        sums[row.role, row.stage] += row.milliseconds
    return [Row(role, stage, value) for (role, stage), value in sums.items()]


def summed(found: Sequence[Row], by: Callable[[Row], str]) -> dict[str, float]:
    """Milliseconds per image by stage or role."""
    sums: defaultdict[str, float] = defaultdict(float)
    for row in found:
        sums[by(row)] += row.milliseconds
    return dict(sums)


def by_stage(found: Sequence[Row]) -> dict[str, float]:
    """Milliseconds per image of every stage, in the order of the street."""
    sums = summed(found, lambda row: row.stage)
    return {stage: sums.get(stage, 0.0) for stage in STAGES}


def outside_model(stages: Mapping[str, float]) -> float:
    """The whole street but the model."""
    return sum(value for stage, value in stages.items() if stage != MODEL)


def everything_else(stages: Mapping[str, float]) -> float:
    """All but receive, decode, prepare and the model."""
    return sum(value for stage, value in stages.items() if stage not in APART)
