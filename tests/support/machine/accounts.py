"""Other accounts of this machine, as attackers.

A command run as one of them, and folders that they may enter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STRANGER = 41003


@contextmanager
def open_to_all() -> Iterator[Path]:
    """A new folder that every account may enter, unlike those of pytest.

    Skips the test for those who cannot be another account.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to act as another account")
    folder = Path(tempfile.mkdtemp(prefix="hilum-accounts-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def as_stranger(
    *command: str | Path, folder: Path, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder as an account that is nobody's."""
    become = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    return subprocess.run(
        [*become, *map(str, command)],
        check=check,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
    )


def folder_of_stranger(path: Path) -> Path:
    """A new folder into which that account may write."""
    path.mkdir()
    os.chown(path, STRANGER, STRANGER)
    return path
