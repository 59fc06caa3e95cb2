"""What of a file is in memory."""

from __future__ import annotations

import os
from pathlib import Path


def is_in_memory(path: Path) -> bool:
    """Whether the first bytes can be read without waiting for the disk (RWF_NOWAIT, preadv2(2)); False where that cannot be asked."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(16)], 0, os.RWF_NOWAIT) == 16
        except OSError:
            return False
