"""What arrives: a durable file that waits for its row."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.domain import Instance, Priority


@dataclass(frozen=True, slots=True)
class Compared:
    """With which file an arrival's own was compared: the `path` of the row, empty: there was none.

    The arrival's digests say the outcome. `sha256`: of its data set, `former_sha256`: of that
    file's;
    None: nobody needs them. `is_damaged`: that file is not what its row says.
    """

    path: str = ""
    sha256: str | None = None
    former_sha256: str | None = None
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A durable file that has no row yet, and what shall happen with it.

    The instance's `path` is where the file will lie.

    `releases`: as the settings name them; a rollout may have others read the image. `is_left_behind`: by a process that died; what has
    its row already may be newer. `may_correct`: whether its sender may give a known image another
    header; None: one of its own.
    `compared`: None where nobody has compared files.
    """

    instance: Instance
    priority: Priority
    releases: tuple[str, ...]
    quiet_seconds: float
    maximum_wait_seconds: float
    is_left_behind: bool = False
    may_correct: bool | None = None
    compared: Compared | None = None
