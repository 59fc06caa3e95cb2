"""What arrives: a durable file that waits for its row."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.domain import Instance, Lane


@dataclass(frozen=True, slots=True)
class Arrival:
    """A durable file that has no row yet, and what shall happen with it. The instance's `path` is where the file will lie.

    `releases`: as the settings name them; a rollout may have others read the image. `is_left_behind`: by a process that died; what has
    its row already may be newer. `may_correct`: whether its sender may give a known image another header; None: one of its own.
    """

    instance: Instance
    lane: Lane
    releases: tuple[str, ...]
    quiet_seconds: float
    maximum_wait_seconds: float
    is_left_behind: bool = False
    may_correct: bool | None = None
