"""What this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def deleted_and_open(folder: Path) -> list[str]:
    """Files without a name that this process keeps."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(entry.readlink()))
    return [link for link in links if link.startswith(str(folder)) and link.endswith(" (deleted)")]
