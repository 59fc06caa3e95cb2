"""A file system of its own with a journal, whose power can be cut.

What it has not written to its disk by then was never there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

# EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN, _IOR('X', 125, __u32), with *_GOING_FLAGS_NOLOGFLUSH: how
# xfstests simulates a crash.
_SHUT_DOWN: Final = 0x8004587D
_WITHOUT_ITS_LOG: Final = struct.pack("I", 2)
_MAKE: Final = {"ext4": ("mkfs.ext4", "-q", "-E", "nodiscard"), "xfs": ("mkfs.xfs", "-q", "-K")}
_MIB: Final = 1 << 20


def kinds() -> list[str]:
    """Those that can be made here (Debian packages e2fsprogs, xfsprogs)."""
    return [kind for kind, command in _MAKE.items() if shutil.which(command[0])]


class PowerDisk:
    """Mounted on `folder` inside a `with` block.

    For root; raises CalledProcessError where it cannot be made or mounted.
    """

    def __init__(self, kind: str, folder: Path, mib: int, options: Sequence[str] = ()) -> None:
        """`options`: more, for mkfs."""
        self._kind = kind
        self._folder = folder
        self._options = options
        self._image = folder.with_name(f"{folder.name}.{kind}")
        self._bytes = mib * _MIB

    def __enter__(self) -> Self:
        """Make it anew and mount it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(self._bytes)
        _run(*_MAKE[self._kind], *self._options, str(self._image))
        self._mount()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Unmount it for good."""
        self._unmount()
        self._image.unlink()

    def cut(self) -> None:
        """At once: its journal ends where it is, and nobody can read or write a file."""
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUT_DOWN, _WITHOUT_ITS_LOG)
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Power again: what its journal says is done, as after any crash.

        Nobody may hold a file of it.
        """
        self._unmount()
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-t", self._kind, "-o", "loop", str(self._image), str(self._folder))

    def _unmount(self) -> None:
        _run("umount", str(self._folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
