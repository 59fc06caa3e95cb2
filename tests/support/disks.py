"""File systems that are soon full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of this size, mounted on `folder`. Skips the test where mounting is not allowed."""
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", folder], check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill_to(folder: Path, free: int) -> Path:
    """Leave so many bytes of the folder's file system; the file that takes the others."""
    found, file = os.statvfs(folder), folder / "fill"
    with file.open("ab") as stream:
        stream.write(b"x" * (found.f_bavail * found.f_frsize - free))
    return file
