"""An arrival: a durable file that waits for its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hilum.domain import Instance, Priority, RuleDecision


@dataclass(frozen=True, slots=True)
class Compared:
    """The file that an arrival's own was compared with: the row's `path`; empty: none.

    The arrival's digests tell the outcome. `sha256`: of its data set, `former_sha256`: of the other
    file's; None: not needed. `is_damaged`: that file does not match its row.
    """

    path: str = ""
    sha256: str | None = None
    former_sha256: str | None = None
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A durable file that has no row yet, and its treatment.

    The instance's `path` is the place that the file will have. `releases`: as the settings name
    them; a rollout may have other releases read the image. `is_left_behind`: by a process that
    died; a row that is there may be newer. `may_correct`: whether its sender may give a known image
    another header; None: only one of its own. `compared`: None where files were not compared.
    `decision`: of the rules about its study; None: there are none. `is_deciding`: it was made for
    this arrival, whose study had none. `not_analysed`: why no release reads it; empty: they do.
    `campaigns`: the campaign that wants each release; empty: a live image. `takes_over`:
    Called AE Titles of campaigns; an image or a study that came to one becomes this sender's.
    """

    instance: Instance
    priority: Priority
    releases: tuple[str, ...]
    quiet_seconds: float
    maximum_wait_seconds: float
    is_left_behind: bool = False
    may_correct: bool | None = None
    compared: Compared | None = None
    campaigns: Mapping[str, int] = field(default_factory=dict)
    takes_over: frozenset[str] = frozenset()
    decision: RuleDecision | None = None
    is_deciding: bool = False
    not_analysed: str = ""
