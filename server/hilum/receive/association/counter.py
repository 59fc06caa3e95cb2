"""Counts of open associations of each listener process of this host.

The processes share the memory, so one limit applies to all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence


class OtherProcesses:
    """Open associations of the other processes.

    `counts`: by Calling AE Title, all others of a process under the empty one.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def total(self) -> int:
        """Return the number for all senders."""
        return sum(self._counts.values())

    def of(self, calling_ae_title: str) -> int:
        """Return the number for a sender with a limit of its own."""
        return self._counts.get(calling_ae_title, 0)


class SharedAssociationCounter:
    """The shared counts. The supervisor makes them and passes on their descriptor.

    The lock of a process that dies is released, and the supervisor clears its counts. `senders`:
    Calling AE Titles that are counted apart, the same in every process.
    """

    def __init__(
        self, processes: int, senders: Sequence[str] = (), descriptor: int | None = None
    ) -> None:
        self._processes = processes
        self._titles = ("", *senders)
        self._row = struct.Struct(f"<{len(self._titles)}L")
        self.descriptor = (
            os.memfd_create("hilum-associations") if descriptor is None else descriptor
        )
        if descriptor is None:
            os.ftruncate(self.descriptor, processes * self._row.size)
        self._memory = mmap.mmap(self.descriptor, processes * self._row.size)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of all counts.

        It is a lock of the process, so one thread of it may hold it at a time.
        """
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def elsewhere(self, index: int) -> OtherProcesses:
        """Return the counts of all processes but this one."""
        rows = [
            self._row.unpack_from(self._memory, other * self._row.size)
            for other in range(self._processes)
            if other != index
        ]
        return OtherProcesses(
            {title: sum(row[place] for row in rows) for place, title in enumerate(self._titles)}
        )

    def write(self, index: int, calling_ae_titles: Sequence[str]) -> None:
        """Write the Calling AE Title of each open association of this process."""
        counts = Counter(title if title in self._titles else "" for title in calling_ae_titles)
        self._row.pack_into(
            self._memory, index * self._row.size, *(counts[title] for title in self._titles)
        )

    def clear(self, index: int) -> None:
        """Clear the counts of a process that has ended."""
        self.write(index, ())


class CounterSlot:
    """One process's counts in the counter; a single process shares none."""

    def __init__(self, counter: SharedAssociationCounter | None = None, index: int = 0) -> None:
        self._counter = counter
        self._index = index

    @contextlib.contextmanager
    def held(self) -> Iterator[OtherProcesses]:
        """Yield the open associations elsewhere, which do not change meanwhile."""
        if self._counter is None:
            yield OtherProcesses({})
            return
        with self._counter.held():
            yield self._counter.elsewhere(self._index)

    def write(self, calling_ae_titles: Sequence[str]) -> None:
        """Write the counts of this process."""
        if self._counter is not None:
            self._counter.write(self._index, calling_ae_titles)
