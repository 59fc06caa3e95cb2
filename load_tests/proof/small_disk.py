"""A file system of a few MiB, to be filled to the last byte."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_BALLOON = "balloon"
_PAGE = bytes(4096)


def may_mount() -> bool:
    """Whether this user may; a container's root may be forbidden it all the same."""
    return (
        os.geteuid() == 0
        and subprocess.run(
            ["unshare", "--mount", "true"], check=False, capture_output=True
        ).returncode
        == 0
    )


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[None]:
    """Mounted at `folder` inside the block. Raises CalledProcessError."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def enlarge(folder: Path, mib: int) -> None:
    """An administrator's cure: the same file system, larger. Raises CalledProcessError."""
    subprocess.run(["mount", "-o", f"remount,size={mib}m", str(folder)], check=True)


def fill(folder: Path, free_bytes: int) -> None:
    """Leave so much room; what others write or free at the same time makes it a little less or more."""
    with contextlib.suppress(OSError), (folder / _BALLOON).open("wb") as file:
        found = os.statvfs(folder)
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free_bytes)


def keep_full(folder: Path, seconds: float) -> None:
    """Not a byte for anybody, also where others give some back."""
    end = time.monotonic() + seconds
    with (folder / _BALLOON).open("ab", buffering=0) as file:
        while time.monotonic() < end:
            if not _takes(file, _PAGE):
                time.sleep(0.1)


def _takes(file: BinaryIO, data: bytes) -> bool:
    try:
        return file.write(data) > 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def free(folder: Path) -> None:
    """Give the room back."""
    (folder / _BALLOON).unlink()


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte inside the block."""
    with (folder / _BALLOON).open("wb", buffering=0) as file:
        while _takes(file, _PAGE):
            pass
    try:
        yield
    finally:
        free(folder)
