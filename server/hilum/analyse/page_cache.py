"""An archive is written once and read once: what was read need not stay in memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def drop_pages(path: Path) -> None:
    """Give the memory that holds this file's bytes back, so that the next file is written into it (posix_fadvise(2)).

    Else each object takes memory that was never used, which on a virtual machine its host has to find first, until the kernel throws
    something away: perhaps what others read again. A hint, whose failure costs memory and nothing else; bytes that are not on the disk
    yet stay.
    """
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
