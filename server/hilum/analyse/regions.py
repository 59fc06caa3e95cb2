"""Shared memory for batches to a Triton on this machine: a batch is copied once, where gRPC copies and packs it half a dozen times.

A region lives as long as the two processes that have mapped it: its name goes when Triton has it. A process that is killed in between
leaves an empty one, which the next process takes away.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Batch = Array | Sequence[Array]
"""(B, C, H, W), or (C, H, W) of each image."""
Register = Callable[[str, str, int], Awaitable[None]]
"""(name, key of shm_open(3), bytes): have Triton map the region. Raises what Triton says."""

_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - where shm_open(3) makes its files on Linux
_PREFIX: Final = "hilum-batch-"
_YOUNG_SECONDS: Final = 60.0  # between its creation and its lock nobody takes a file away


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that Triton knows by this name."""

    name: str
    memory: mmap.mmap

    def fill(self, batch: Batch) -> None:
        """Copy a batch to the beginning, from wherever its images lie."""
        target: Array = np.ndarray((len(batch), *batch[0].shape), batch[0].dtype, self.memory)
        np.stack([*batch], out=target)


class Regions:
    """As many as requests have been under way at once; a request has one to itself. `names`: those that Triton holds."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self.names: list[str] = []
        self.life = 0
        self._free: list[Region] = []
        _sweep()

    async def lend(self, size_bytes: int) -> tuple[int, Region]:
        """A region with room for so many bytes, and the life of Triton for which it holds. Raises OSError, and what `register` raises."""
        fits = (region for region in self._free if len(region.memory) >= size_bytes)
        if (region := next(fits, None)) is None:
            region = await self._made(1 << (size_bytes - 1).bit_length())  # few sizes, so that most fit most batches
        else:
            self._free.remove(region)
        return self.life, region

    def give_back(self, life: int, region: Region) -> None:
        """For the next request; one of an earlier life of Triton is let go."""
        if life == self.life:
            self._free.append(region)

    def forget(self, life: int) -> None:
        """Triton has started anew and knows none of this life; of several requests that find out, the first counts."""
        if life != self.life:
            return
        self.life += 1
        self._free.clear()
        self.names.clear()

    async def _made(self, size_bytes: int) -> Region:
        name = f"{_PREFIX}{secrets.token_hex(8)}"  # no process id: another container may have the same
        with _opened(_FOLDER / name) as file:
            os.posix_fallocate(file, 0, size_bytes)  # else a full file system would be a SIGBUS at the first touch
            memory = mmap.mmap(file, size_bytes)
            await self._register(name, f"/{name}", size_bytes)
        self.names.append(name)
        return Region(name, memory)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A new file that is gone in the end, whatever maps it stays mapped; nobody else may read it: it holds images."""
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed: see `_sweep`
        yield file
    finally:
        os.close(file)
        path.unlink()


def _sweep() -> None:
    """Take away the files of processes that were killed before Triton had them: the kernel has dropped their locks."""
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is gone, somebody else's, or locked
            if time.time() - path.stat().st_mtime > _YOUNG_SECONDS:
                _take_away(path)


def _take_away(path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(file)
