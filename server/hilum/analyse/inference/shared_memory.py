"""Shared memory for batches to a Triton on this machine.

A batch is copied once, where gRPC copies and packs it half a dozen times. A region exists as long
as the two processes that have mapped it. Its name is removed when Triton has mapped it. A process
that is killed in between leaves an empty file, which the next process removes.
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
"""(name, key of shm_open(3), bytes): have Triton map the region. Raises Triton's error."""

_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - where shm_open(3) makes its files on Linux
_PREFIX: Final = "hilum-batch-"
_YOUNG_SECONDS: Final = 60.0  # between its creation and its lock no process removes a file


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that Triton has registered under this name."""

    name: str
    memory: mmap.mmap

    def fill(self, batch: Batch) -> None:
        """Copy a batch to the beginning; its images may be anywhere in memory."""
        target: Array = np.ndarray((len(batch), *batch[0].shape), batch[0].dtype, self.memory)
        np.stack([*batch], out=target)


class Regions:
    """A pool of regions, as many as requests have been in flight at once, one a request.

    `names`: those that Triton has mapped.
    """

    def __init__(self, register: Register) -> None:
        self._register = register
        self.names: list[str] = []
        self.life = 0
        self._free: list[Region] = []
        _sweep()

    async def lend(self, size_bytes: int) -> tuple[int, Region]:
        """Return a region with room for so many bytes, and the current life of Triton.

        Raises OSError, and the errors of `register`.
        """
        fits = (region for region in self._free if len(region.memory) >= size_bytes)
        if (region := next(fits, None)) is None:
            # few sizes, so that most fit most batches
            region = await self._made(1 << (size_bytes - 1).bit_length())
        else:
            self._free.remove(region)
        return self.life, region

    def give_back(self, life: int, region: Region) -> None:
        """Return a region to the pool; one of an earlier life of Triton is dropped."""
        if life == self.life:
            self._free.append(region)

    def forget(self, life: int) -> None:
        """Forget all regions of this life, because Triton has restarted.

        Of several requests that find this out, the first counts.
        """
        if life != self.life:
            return
        self.life += 1
        self._free.clear()
        self.names.clear()

    async def _made(self, size_bytes: int) -> Region:
        # no process id: another container may have the same
        name = f"{_PREFIX}{secrets.token_hex(8)}"
        with _opened(_FOLDER / name) as file:
            # otherwise a full file system would be a SIGBUS at the first write
            os.posix_fallocate(file, 0, size_bytes)
            memory = mmap.mmap(file, size_bytes)
            await self._register(name, f"/{name}", size_bytes)
        self.names.append(name)
        return Region(name, memory)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a new file, whose name is removed at the end; mappings of it stay.

    Other accounts must not read it: it holds images.
    """
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed: see `_sweep`
        yield file
    finally:
        os.close(file)
        path.unlink()


def _sweep() -> None:
    """Remove the files of processes that were killed before Triton had mapped them.

    The kernel has dropped their locks.
    """
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is gone, another account's, or locked
            if time.time() - path.stat().st_mtime > _YOUNG_SECONDS:
                _take_away(path)


def _take_away(path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(file)
