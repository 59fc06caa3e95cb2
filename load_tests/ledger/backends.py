"""CPU of PostgreSQL's sessions, from /proc.

On a busy machine a wall clock measures the neighbours. CPU clocks measure the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, text

_CLIENTS: Final = text("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")


def client_backends(engine: Engine) -> list[int]:
    """The process ids of the sessions of clients."""
    with engine.connect() as connection:
        return list(connection.execute(_CLIENTS).scalars())


def running_ms(processes: Iterable[int]) -> float:
    """Milliseconds that these processes have run on a CPU. One that has ended counts nothing."""
    return sum(map(_running_ns, processes)) / 1e6


class Clocks:
    """The wall clock, and the CPU clocks of this thread and of sessions, from now on."""

    def __init__(self, sessions: Sequence[int]) -> None:
        self._sessions = sessions
        self._began = self._now()

    def _now(self) -> tuple[float, float]:
        cpu_ms = running_ms(self._sessions) + time.thread_time() * 1e3
        return time.perf_counter() * 1e3, cpu_ms

    def passed(self) -> tuple[float, float]:
        """Milliseconds by the wall clock, and of CPU."""
        wall_ms, cpu_ms = self._now()
        return wall_ms - self._began[0], cpu_ms - self._began[1]


def _running_ns(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0
