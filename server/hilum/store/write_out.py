"""Starting to write a file out while its bytes still come in, so that the sync at its end finds little left to do (Linux)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_START = 2  # SYNC_FILE_RANGE_WRITE, sync_file_range(2): begins, waits for nothing, promises nothing


def _load() -> Callable[[int, int, int], object]:
    found = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is None:
        return lambda _fd, _offset, _count: None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return lambda fd, offset, count: found(fd, offset, count, _START)


_start = _load()


def start_write_out(fd: int, offset: int, count: int) -> None:
    """Ask the kernel to begin writing these bytes. A hint: what it answers is not looked at, `fdatasync` says whether it went well."""
    _start(fd, offset, count)
