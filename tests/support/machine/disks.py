"""File systems that are soon full, or dead."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, mebibytes: int, inodes: int = 0) -> Iterator[Path]:
    """A file system of this size, mounted on `folder`; `inodes` 0: as many as there may be.

    Skips the test where that is not allowed.
    """
    folder.mkdir()
    options = f"size={mebibytes}m" + (f",nr_inodes={inodes}" if inodes else "")
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False
        ).returncode
    ):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def dead_disk(folder: Path) -> Iterator[None]:
    """Mounted on `folder`, a FUSE file system whose program has ended (ENOTCONN).

    Skips the test where mounting is not allowed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    try:
        program = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("needs /dev/fuse")
    options = f"fd={program},rootmode=40000,user_id=0,group_id=0".encode()
    is_refused = library.mount(b"dead", os.fsencode(folder), b"fuse", 0, options)
    os.close(program)
    if is_refused:
        pytest.skip("needs the right to mount a FUSE file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill_to(folder: Path, free: int) -> Path:
    """Leave so many bytes of the folder's file system; the file that takes the others."""
    found, file = os.statvfs(folder), folder / "fill"
    with file.open("ab") as stream:
        stream.write(b"x" * (found.f_bavail * found.f_frsize - free))
    return file


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    with small_disk(tmp_path / "disk", 16) as folder:
        yield folder
