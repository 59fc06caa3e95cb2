"""Reads past the page cache (O_DIRECT of open(2)), for files that are read once. Torch-free.

The page cache would take memory that is not used again, and find, fill, map and free each page: for
10 MB that takes five times as much CPU as to have the disk write into memory that is there. A file
that is in the cache already is better read from there.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LEAST_BYTES: Final = 1 << 20  # smaller files cost nearly the same either way
# A thread keeps as much memory for its next file. Files may be much larger, and the header has not
# been checked yet.
_MOST_BYTES: Final = 64 << 20
_PAGE_BYTES: Final = mmap.PAGESIZE
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)  # Linux
_mincore = getattr(ctypes.CDLL(None), "mincore", None)
_OWN = threading.local()
# References to an unused buffer: by the thread, by `_buffer`, and by the call that counts them.
_REFERENCES: Final = 3


class Uncached:
    """An open file, read piece by piece into writable memory of its own.

    Nothing else uses that memory while a view of it lives.
    """

    def __init__(self, file: int, size: int) -> None:
        self.size = size
        self._file = file
        self._view = _buffer(size).data
        self._count = 0  # are here

    def first(self, count: int) -> memoryview | None:
        """So many bytes from the beginning on; those that are here are not read again.

        None: read the mapping, which may say why.
        """
        end = _whole_pages(count)
        with contextlib.suppress(OSError):
            # A read that ends within a page was the file's last one.
            while self._count < count and (
                read := os.preadv(self._file, [self._view[self._count : end]], self._count)
            ):
                self._count += read
        return self._view[:count] if self._count >= count else None


@contextlib.contextmanager
def uncached(path: Path | str, mapped: mmap.mmap) -> Iterator[Uncached | None]:
    """The file that is mapped, to be read as long as this lasts.

    None where it is better read from the mapping: it is small or very large, or in memory, or on a
    file system that has no other way.
    """
    size = len(mapped)
    is_meant = (
        _O_DIRECT and _LEAST_BYTES <= size <= _MOST_BYTES and not _is_cached(mapped, size // 2)
    )
    if (file := _opened(path) if is_meant else None) is None:
        yield None
        return
    try:
        yield Uncached(file, size)
    finally:
        os.close(file)


def _opened(path: Path | str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | _O_DIRECT)
    except OSError:
        return None


def _is_cached(mapped: mmap.mmap, position: int) -> bool:
    """Whether that page of the file is in memory (mincore(2)); True where that is unknown."""
    if _mincore is None:
        return True
    page = (
        ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + position // _PAGE_BYTES * _PAGE_BYTES
    )
    seen = ctypes.c_ubyte()
    return _mincore(ctypes.c_void_p(page), ctypes.c_size_t(1), ctypes.byref(seen)) != 0 or bool(
        seen.value & 1
    )


def _buffer(size: int) -> NDArray[np.uint8]:
    """Pages for so many bytes: those of the last time, if nothing refers to them any more."""
    kept: NDArray[np.uint8] | None = getattr(_OWN, "buffer", None)
    if kept is not None and kept.size >= size and sys.getrefcount(kept) == _REFERENCES:
        return kept
    _OWN.buffer = made = np.frombuffer(mmap.mmap(-1, _whole_pages(size)), np.uint8)
    return made


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES
