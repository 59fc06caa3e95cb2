"""Writing past the page cache: whether a file system does it (Linux, O_DIRECT of open(2))."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def takes_direct_io(folder: Path) -> bool:
    """Of files in this folder, which must be there and writable. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".direct-io-") as file:
        try:
            descriptor = os.open(file.name, os.O_WRONLY | getattr(os, "O_DIRECT", 0))
        except OSError:
            return False
        os.close(descriptor)
        return hasattr(os, "O_DIRECT")
