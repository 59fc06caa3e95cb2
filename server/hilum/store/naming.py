"""How the name of a received file becomes durable, by what its file system promises of order.

A name must never outlive a power cut without the bytes behind it. Any file system keeps that when the bytes are synced before the file is
renamed, and the folder afterwards: two commits of the journal, one after the other. Where the journal takes changes in order, and a sync of
a file takes along its new name, bytes that are on the disk when the file is renamed, and one sync of the file behind that, are enough.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol

from hilum.store.directory_sync import SharedSync
from hilum.store.write_out import CAN_WAIT, await_write_out

NameSync = Literal["auto", "folder"]
"""The setting `receive.name_sync`."""

# Both log a renamed file's own inode (its change time) with its name, so that fsync(2) of the file commits the name, and flush the disk's
# cache before the commit. `make proof PROOF=power` cuts the power of both.
_IN_ORDER: Final = frozenset({"ext4", "xfs"})
_MOUNTS: Final = Path("/proc/self/mountinfo")


class Naming(Protocol):
    """Between the last byte of a file and its acknowledgement: `before` the file is renamed, and `after`. `commits` of the journal."""

    commits: ClassVar[int]

    def before(self, fd: int) -> None:
        """Return when no power cut can leave the file's next name without all of its bytes. Raises OSError."""

    def after(self, fd: int) -> None:
        """Return when no power cut can take the bytes or the name. Raises OSError."""


class ByFolder:
    """On any file system. The second sync is shared by all who wait."""

    commits: ClassVar[int] = 2

    def __init__(self, folder: Path) -> None:
        self._folder_sync = SharedSync(folder)

    def before(self, fd: int) -> None:
        """The file."""
        os.fdatasync(fd)

    def after(self, _fd: int) -> None:
        """The folder."""
        self._folder_sync.wait()


class ByFile:
    """Where the journal keeps order. Not by fdatasync, which waits for the commit of a file's size and not for that of its name."""

    commits: ClassVar[int] = 1

    def before(self, fd: int) -> None:
        """The bytes."""
        await_write_out(fd)

    def after(self, fd: int) -> None:
        """The file."""
        os.fsync(fd)


def naming_of(folder: Path, wanted: NameSync = "auto") -> Naming:
    """For files of a folder that is there."""
    is_in_order = wanted == "auto" and CAN_WAIT and file_system_of(folder) in _IN_ORDER
    return ByFile() if is_in_order else ByFolder(folder)


def file_system_of(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Its type, as mount(8) names it; "" where nobody says (proc_pid_mountinfo(5))."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    found = [_mount(line) for line in lines]
    around = {str(folder.resolve()), *map(str, folder.resolve().parents)}
    # Of mounts on one folder the last one hides the others.
    inner = [(len(point), number, kind) for number, (point, kind) in enumerate(found) if point in around]
    return max(inner)[2] if inner else ""


def _mount(line: str) -> tuple[str, str]:
    """Mount point and type."""
    before, _, behind = line.partition(" - ")
    fields, kinds = before.split(), behind.split()
    return (_unescaped(fields[4]), kinds[0]) if len(fields) > 4 and kinds else ("", "")


def _unescaped(text: str) -> str:
    """Blanks, tabs, ends of line and backslashes stand as three octal digits."""
    for character in " \t\n\\":
        text = text.replace(f"\\{ord(character):03o}", character)
    return text
