"""What of a file is in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from pathlib import Path

import pytest


def is_in_memory(path: Path, position: int = 0) -> bool:
    """Whether the page of this position is, by mincore(2), which reads nothing."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE) as mapped:
        start = (ctypes.c_char * len(mapped)).from_buffer(mapped)
        found = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        try:
            if ctypes.CDLL(None, use_errno=True).mincore(
                ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), found
            ):
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del start
        return bool(found[position // mmap.PAGESIZE] & 1)


def can_be_dropped(path: Path) -> bool:
    """Whether its file system, unlike one in memory, gives pages back.

    The file is in memory and on the disk afterwards.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        is_dropped = not is_in_memory(path)
        file.read()
    return is_dropped


def takes_direct_io(folder: Path) -> bool:
    """Whether files in this folder can be read past the page cache (O_DIRECT of open(2))."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            return False
    return True


def dropped(path: Path) -> Path:
    """The same file, on the disk alone; the test is skipped where there is no such thing."""
    if not can_be_dropped(path) or not takes_direct_io(path.parent):
        pytest.skip("this file system keeps its files in memory, or reads through it alone")
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def bytes_read() -> int:
    """From disks, by this process, since it began (proc_pid_io(5))."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split("read_bytes:")[1].split()[0])
