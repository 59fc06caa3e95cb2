"""CPU and memory of a tree of processes, by role: who used how much, Hilum and its peers apart.

CPU seconds are those of each process's own clock (clock_getcpuclockid(3)): user and system, all
threads, ended ones too, in nanoseconds. Only what a parent knows of children that ended unseen
comes in ticks of 10 ms (cutime and cstime of proc(5)).
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testing.repeater import Repeater

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# CPUCLOCK_SCHED of the kernel's posix-timers.h: what clock_getcpuclockid(3) makes of a process id
_SCHED_CLOCK = 2
_SPAWNED = {"analyser": "decode", "dispatcher": "report", "api": "paint"}

RoleOf = Callable[[Sequence[str], str], str]
"""(command line, role of the parent or "") → role."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment.

    `children_seconds`: CPU of children that it has waited for, in ticks.
    """

    pid: int
    parent_pid: int
    started_ticks: int
    cpu_seconds: float
    children_seconds: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes of a role have used since they started, and hold now."""

    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    processes: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            self.cpu_seconds + other.cpu_seconds,
            self.rss_bytes + other.rss_bytes,
            self.processes + other.processes,
        )


Snapshot = dict[str, Usage]


def hilum_role(command: Sequence[str], parent_role: str) -> str:
    """Role of a process of `hilum serve`.

    Its own name for it, or tritonserver, triton-stub, decode, report, paint, other.
    """
    line = " ".join(command)
    if "hilum.processes" in command:
        return command[-1].rpartition("-")[0]
    if "triton_python_backend_stub" in line:
        return "triton-stub"
    if "tritonserver" in line:
        return "tritonserver"
    if "spawn_main" in line:
        return _SPAWNED.get(parent_role, "other")
    return "supervisor" if not parent_role else "other"


class Accountant(Repeater):
    """Follows the tree below `root_pid`, so that the CPU of processes that end is not lost.

    A context manager.
    """

    def __init__(
        self, root_pid: int, role_of: RoleOf = hilum_role, every_seconds: float = 0.5
    ) -> None:
        super().__init__(every_seconds)
        self._root = root_pid
        self._role_of = role_of
        self._seen: dict[tuple[int, int], tuple[str, Process]] = {}
        self._alive: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Look every half second from now on."""
        self.look()
        return super().__enter__()

    def snapshot(self) -> Snapshot:
        """Look now; use since the start of each process, by role, of those too that have ended."""
        with self._lock:
            self._look()
            return self._sums()

    def look(self) -> None:
        """Note what all processes have used until now."""
        with self._lock:
            self._look()

    def roles(self) -> dict[int, str]:
        """Process id to role, of those that lived at the last look."""
        with self._lock:
            return {pid: self._seen[pid, started][0] for pid, started in self._alive}

    def _look(self) -> None:
        table = processes()
        # A process whose parent has died belongs to another one now, but still to this tree.
        orphans = [
            pid
            for pid, started in self._alive
            if pid in table and table[pid].started_ticks == started
        ]
        found: dict[int, str] = {}
        for process in below(table, [self._root, *orphans]):
            key = (process.pid, process.started_ticks)
            found[process.pid] = self._role(
                process, found, self._seen[key][0] if key in self._seen else "other"
            )
            self._seen[key] = (found[process.pid], process)
        self._alive = {(pid, table[pid].started_ticks) for pid in found}

    def _role(self, process: Process, found: Mapping[int, str], known: str) -> str:
        """Of an orphan, and of one that has just ended, what it was before."""
        command = command_line(process.pid)
        is_root = process.pid == self._root
        if not command or not (is_root or process.parent_pid in found):
            return known
        return self._role_of(command, "" if is_root else found[process.parent_pid])

    def _sums(self) -> Snapshot:
        sums: defaultdict[str, Usage] = defaultdict(Usage)
        for key, (role, process) in self._seen.items():
            cpu = process.cpu_seconds + self._unseen(process)
            lives = key in self._alive
            sums[role] += Usage(cpu, process.rss_bytes if lives else 0, int(lives))
        return dict(sums)

    def _unseen(self, parent: Process) -> float:
        """CPU of ended children, seconds, as far as it was not seen while they lived."""
        ended = (
            child
            for key, (_, child) in self._seen.items()
            if key not in self._alive and child.parent_pid == parent.pid
        )
        return max(
            0.0,
            parent.children_seconds
            - sum(child.cpu_seconds + child.children_seconds for child in ended),
        )


def roles(root_pid: int, role_of: RoleOf = hilum_role) -> dict[int, str]:
    """Process id to role, for `root_pid` and all below it that live now."""
    accountant = Accountant(root_pid, role_of)
    accountant.look()
    return accountant.roles()


def snapshot(root_pid: int, role_of: RoleOf = hilum_role) -> Snapshot:
    """Use since the start of each process that lives now, by role."""
    return Accountant(root_pid, role_of).snapshot()


def spent(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> Snapshot:
    """CPU between two snapshots, with the memory and the processes of the later one."""
    return {
        role: Usage(
            use.cpu_seconds - before.get(role, Usage()).cpu_seconds, use.rss_bytes, use.processes
        )
        for role, use in after.items()
    }


def total(use: Mapping[str, Usage]) -> Usage:
    """All roles together."""
    return sum(use.values(), Usage())


def below(table: Mapping[int, Process], roots: Sequence[int]) -> Iterator[Process]:
    """The roots and everything below them, each once, parents before their children and one root's tree before the next."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for process in table.values():
        children[process.parent_pid].append(process.pid)
    waiting = list(reversed(roots))
    done = set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in table and pid not in done:
            done.add(pid)
            waiting += children[pid]
            yield table[pid]


def processes() -> dict[int, Process]:
    """Every process of this machine that can be looked at."""
    found = (
        read_process(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()
    )
    return {process.pid: process for process in found if process is not None}


def read_process(pid: int) -> Process | None:
    """One process; None: it is gone."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
        cpu = time.clock_gettime((~pid << 3) | _SCHED_CLOCK)
    except OSError:
        return None
    # Fields 4, 16, 17, 22 and 24 of proc(5); the two before the state are cut off.
    return Process(
        pid,
        int(fields[1]),
        int(fields[19]),
        cpu,
        (int(fields[13]) + int(fields[14])) / _TICKS,
        int(fields[21]) * _PAGE_BYTES,
    )


def command_line(pid: int) -> list[str]:
    """Arguments; empty for one that has ended."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_text(encoding="utf-8", errors="replace")
            .rstrip("\0")
            .split("\0")
        )
    except OSError:
        return []


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU seconds of a process's living threads, summed by the names that the kernel knows."""
    sums: defaultdict[str, float] = defaultdict(float)
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        try:
            sums[(folder / "comm").read_text().strip()] += (
                int((folder / "schedstat").read_text().split()[0]) / 1e9
            )
        except OSError:  # it ended meanwhile
            continue
    return dict(sums)


def proportional_bytes(pid: int) -> int:
    """Memory with shared pages divided among those who share them (PSS).

    Takes milliseconds where much is mapped; 0: it is gone.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
