"""Bytes as a file that is on no disk, for code that reads a path."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class MemoryFile:
    """An unnamed file in memory (memfd_create(2)) until it is closed.

    `path` opens in this process and in those that it started, of the same user.
    """

    def __init__(self, content: bytes | memoryview) -> None:
        """Take the bytes. Raises OSError."""
        self._fd = os.memfd_create("hilum", os.MFD_CLOEXEC)
        self.path = Path(f"/proc/{os.getpid()}/fd/{self._fd}")
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Give the memory back, once no other process has the file open."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


@contextlib.contextmanager
def held_in_memory(content: bytes | memoryview) -> Iterator[Path]:
    """Yield the path of a file with these bytes, which ends with the block."""
    file = MemoryFile(content)
    try:
        yield file.path
    finally:
        file.close()
