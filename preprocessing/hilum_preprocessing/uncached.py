"""Files that are read once and lie in no cache: read past the page cache (O_DIRECT of open(2)). Torch-free.

The page cache would take memory for them that nobody uses again, and find, fill, map and give back each page: for 10 MB that takes five
times as much CPU as to have the disk write into memory that is there. A file that lies in the cache is better read where it is.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LEAST_BYTES: Final = 1 << 20  # what is smaller costs nearly the same either way
# A thread keeps as much for its next file. Files may be much larger, and nobody has looked yet whether a word of the header is true.
_MOST_BYTES: Final = 64 << 20
_PAGE_BYTES: Final = mmap.PAGESIZE
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)  # Linux
_mincore = getattr(ctypes.CDLL(None), "mincore", None)
_OWN = threading.local()
_REFERENCES: Final = 3  # to a buffer that nobody uses: the thread's, that of `_buffer`, and of the call that counts them


def read_uncached(path: Path | str, mapped: mmap.mmap) -> memoryview | None:
    """All bytes of the file that is mapped, in writable memory that nothing else uses while the view lives.

    None where it is better read from the mapping: it is small or very large, or in memory, or on a file system that has no other way.
    """
    size = len(mapped)
    if not _O_DIRECT or not _LEAST_BYTES <= size <= _MOST_BYTES or _is_cached(mapped, size // 2):
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _O_DIRECT)
    except OSError:
        return None
    try:
        view = _buffer(size).data
        return view[:size] if _fill(view, file, size) else None
    except OSError:  # whatever it is, who reads the mapping meets it again
        return None
    finally:
        os.close(file)


def _fill(view: memoryview, file: int, size: int) -> bool:
    """Whether there were so many bytes. A read that ends within a page was the file's last one."""
    count = 0
    while count < size and (read := os.preadv(file, [view[count:]], count)):
        count += read
    return count >= size


def _is_cached(mapped: mmap.mmap, position: int) -> bool:
    """Whether that page of the file is in memory (mincore(2)); True where nobody can say."""
    if _mincore is None:
        return True
    page = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + position // _PAGE_BYTES * _PAGE_BYTES
    seen = ctypes.c_ubyte()
    return _mincore(ctypes.c_void_p(page), ctypes.c_size_t(1), ctypes.byref(seen)) != 0 or bool(seen.value & 1)


def _buffer(size: int) -> NDArray[np.uint8]:
    """Pages for so many bytes: those of the last time, if nothing refers to them any more."""
    kept: NDArray[np.uint8] | None = getattr(_OWN, "buffer", None)
    if kept is not None and kept.size >= size and sys.getrefcount(kept) == _REFERENCES:
        return kept
    _OWN.buffer = made = np.frombuffer(mmap.mmap(-1, -(-size // _PAGE_BYTES) * _PAGE_BYTES), np.uint8)
    return made
