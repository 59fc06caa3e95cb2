"""Syncing of directories: a file's name is durable only when its folder is synced."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


class SharedSync:
    """One directory sync shared among all waiters.

    A caller that arrives during a sync waits for the next one: the running one may have missed its
    rename.
    """

    def __init__(self, folder: Path, sync: Callable[[Path], None] | None = None) -> None:
        self._folder = folder
        self._sync = sync or sync_folder
        self._begun = self._done = self._failed = 0  # numbers of syncs
        self._problem = OSError()
        self._turn = threading.Lock()

    def wait(self) -> None:
        """Return when a sync that began after this call has ended.

        Raises its OSError, also in the callers that shared it. The kernel reports such an error
        once: another sync would succeed, and the name need not be on the disk.
        """
        mine = self._begun + 1
        with self._turn:
            if mine <= self._failed:
                raise OSError(self._problem.errno, self._problem.strerror)
            if self._done < mine:
                self._run()

    def _run(self) -> None:
        self._begun += 1
        try:
            self._sync(self._folder)
        except OSError as error:
            self._failed = self._begun
            self._problem = error
            raise
        self._done = self._begun


def make_durable_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and sync every level. `mode`: of the last one, less the umask.

    An acknowledged object must not vanish with its folder.
    """
    missing = [level for level in (folder, *folder.parents) if not level.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for level in missing:
        # A parent that we may not open is not ours to create in either.
        with contextlib.suppress(PermissionError):
            sync_folder(level.parent)


def sync_folder(folder: Path) -> None:
    """Make all that was created, renamed or deleted in a folder durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file_system(folder: Path) -> None:
    """Make everything in the file system of a folder durable (syncfs(2)).

    One wait for any number of files. Raises OSError.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(fd)
