"""Files and folders below a trusted folder.

No link leads out of it, also if another account puts one there meanwhile.

Each folder on the way is opened by its name in the one before (openat, O_NOFOLLOW), and the
operation uses the folder that is open.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without waiting for the writer of a pipe.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PART: Final = ".hilum.part"


@contextlib.contextmanager
def open_folder(root: Path, *parts: str, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder `parts` below `root`; with `make` those that are missing are made.

    Raises OSError.

    `root` may be a link: it stands in the settings, or a person has named it.
    """
    folder = os.open(root, _FOLDER)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def open_file(root: Path, file: Path) -> BinaryIO:
    """A file below `root`, for reading.

    Raises OSError with its path, ELOOP or ENOTDIR for a link.
    """
    *folders, name = file.relative_to(root).parts
    try:
        with open_folder(root, *folders) as folder:
            return os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error


def exists(folder: int, name: str) -> bool:
    """Whether an open folder has this name, a link that leads nowhere included. Raises OSError."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def read(folder: int, name: str) -> bytes:
    """The content of a file in an open folder. Raises OSError, ELOOP for a link."""
    with os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb") as stream:
        return stream.read()


def write(folder: int, name: str, content: bytes, *, is_durable: bool = False) -> None:
    """Make a new file in an open folder. Raises OSError, FileExistsError also for a link."""
    with os.fdopen(os.open(name, _NEW_FILE, 0o666, dir_fd=folder), "wb") as stream:
        stream.write(content)
        if is_durable:
            stream.flush()
            os.fsync(stream.fileno())


def remove(folder: int, name: str) -> None:
    """Delete a name in an open folder, if it is there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def move(source: int, name: str, target: int, new_name: str) -> None:
    """Move a file from one open folder to another, also to another mount. Raises OSError.

    Each of systemd's ReadWritePaths is a mount of its own.
    """
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, name, target, new_name)
        remove(source, name)


def _copy(source: int, name: str, target: int, new_name: str) -> None:
    """Durable under its new name, or not there."""
    remove(target, _PART)  # of a process that died
    with os.fdopen(os.open(name, _FILE, dir_fd=source), "rb") as stream:
        status = os.fstat(stream.fileno())
        with os.fdopen(
            os.open(_PART, _NEW_FILE, stat.S_IMODE(status.st_mode) & 0o777, dir_fd=target), "wb"
        ) as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
            copy.flush()
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(copy.fileno())
    os.rename(_PART, new_name, src_dir_fd=target, dst_dir_fd=target)
    os.fsync(target)
