"""Durable renaming of received files, by the order that their file system keeps.

A name must never outlive a power cut without the bytes behind it. Any file system keeps that when
the file is synced before it is renamed, and its folder afterwards. Those are two commits of the
journal, one after the other. Where the journal takes changes in order, it is enough that the bytes
are on the disk before the file is renamed. The commit that the folder's sync waits for includes the
earlier changes of the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal

from hilum.store.archive.directory_sync import SharedSync
from hilum.store.archive.write_out import CAN_WAIT, await_write_out

Durability = Literal["auto", "strict"]
"""The setting `receive.durability`."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SYSTEM: Final = Path("/sys")


class DurableRename:
    """The steps between a file's last byte and its acknowledgement, for the files of one folder."""

    def __init__(self, folder: Path, *, is_in_order: bool) -> None:
        self._folder_sync = SharedSync(folder)
        self._is_in_order = is_in_order

    @property
    def syncs(self) -> int:
        """The number of syncs that a file waits for in turn; several files may share them."""
        return 1 if self._is_in_order else 2

    def flush(self, fd: int) -> None:
        """Return when the file may be renamed.

        No power cut can leave the new name without all bytes. Raises OSError.
        """
        if self._is_in_order:
            await_write_out(fd)
        else:
            os.fdatasync(fd)

    def commit(self) -> None:
        """Return when no power cut can take the bytes or the name of the renamed file.

        One sync serves all waiters. Raises OSError.
        """
        self._folder_sync.wait()


def durable_rename_of(folder: Path, wanted: Durability = "auto") -> DurableRename:
    """Choose the steps for files of this folder."""
    return DurableRename(
        folder, is_in_order=wanted == "auto" and CAN_WAIT and is_in_order(mount_of(folder))
    )


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount of a folder: its type, as mount(8) names it, and its device, `major:minor`."""

    kind: str
    device: str


def is_in_order(mount: Mount | None, system: Path = _SYSTEM) -> bool:
    """Whether the file system's journal takes changes in order.

    ext4 and XFS note a file's size and blocks in their journal when its bytes have been written
    out, before a rename that follows. They commit in order, and have the disk empty its cache
    before a commit. `make proof PROOF=power` cuts the power of both. An ext4 may have been made
    without a journal: then nothing is in order.
    """
    if mount is None or mount.kind not in ("ext4", "xfs"):
        return False
    return mount.kind == "xfs" or _has_journal(mount, system)


def _has_journal(mount: Mount, system: Path) -> bool:
    """Whether a process writes an ext4's journal; False where the kernel does not show it."""
    name = (system / "dev/block" / mount.device).resolve().name
    try:
        return (
            (system / "fs/ext4" / name / "journal_task")
            .read_text(encoding="ascii")
            .strip()
            .isdigit()
        )
    except OSError:
        return False


def mount_of(folder: Path, mounts: Path = _MOUNTS) -> Mount | None:
    """The mount that holds a folder (proc_pid_mountinfo(5)); None: it is not listed."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    around = {str(folder.resolve()), *map(str, folder.resolve().parents)}
    # The last mount on a folder hides the others.
    inner = [
        (len(point), number, mount)
        for number, (point, mount) in enumerate(map(_mount, lines))
        if point in around
    ]
    return max(inner, key=itemgetter(0, 1))[2] if inner else None


def _mount(line: str) -> tuple[str, Mount]:
    """The mount point, and its mount."""
    before, _, behind = line.partition(" - ")
    fields = before.split()
    kinds = behind.split()
    return (
        (_unescaped(fields[4]), Mount(kinds[0], fields[2]))
        if len(fields) > 4 and kinds
        else ("", Mount("", ""))
    )


def _unescaped(text: str) -> str:
    """Decode blanks, tabs, ends of line and backslashes, which stand as three octal digits."""
    for character in " \t\n\\":
        text = text.replace(f"\\{ord(character):03o}", character)
    return text
