"""Children of a process, while they come and go.

By the parent that each process names: `/proc/PID/task/*/children` is a list of each thread, and a
child changes lists when its thread ends.
"""

from __future__ import annotations

from testing.accounting import below, processes


def children_of(pid: int) -> list[int]:
    """Process ids of its living children; none when it has ended."""
    return [process.pid for process in processes().values() if process.parent_pid == pid]


def descendants_of(pid: int) -> list[int]:
    """Its children and theirs, parents first."""
    return [process.pid for process in below(processes(), [pid]) if process.pid != pid]
