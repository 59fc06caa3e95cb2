"""Page cache of the archive: a file is written once and read once, so its pages can be dropped."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def drop_pages(path: Path) -> None:
    """Free the memory that holds this file's bytes for the next file (posix_fadvise(2)).

    Otherwise each object takes memory that was never used. On a virtual machine the host has to
    find it first. This goes on until the kernel drops pages, perhaps pages that are read again. It
    is a hint: a failure costs memory and nothing else. Bytes that are not on the disk yet stay.
    """
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
