"""A folder of this machine. No link leads out of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from hilum import beneath
from hilum.domain import SeriesReason
from hilum.retrieve.files.tree import FileVersion, TreeEntry
from hilum.retrieve.source import SourceError

_LINK_OUT: Final = "a link that leads out of the folder; name the folder of its target"
_LINK_TO_FOLDER: Final = "a link to a folder; name its target as a folder of its own"
_SPECIAL: Final = "a pipe, a socket or a device, and no file"
_NOT_UTF_8: Final = "its name is not UTF-8; rename it"


class LocalTree:
    """A folder of this machine, with the rules for links that `hilum ingest` has, or stricter.

    A link to a file is followed to a target below the folder. A link to a folder is not followed:
    its target is below, and taken anyway, or outside, and reported.
    """

    def __init__(self, folder: Path, ours: Mapping[Path, str]) -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay, as people know the folder
        self._real = Path(os.path.realpath(folder))
        self._ours = ours

    @property
    def address(self) -> str:
        """The absolute path."""
        return str(self._folder)

    def origin(self, path: str) -> str:
        """Return the absolute path of a file in it."""
        return f"{self._folder}/{path}"

    def path_of(self, origin: str) -> str:
        """Return the path of an origin. Raises SourceError if it is outside."""
        path = os.path.relpath(origin, self._folder)
        if path.split(os.sep, 1)[0] == os.pardir:
            raise SourceError("the file is not below the folder of this campaign", is_final=True)
        return f"{path}/" if origin.endswith("/") else path

    def entries(self, folder: str) -> Iterator[TreeEntry]:
        """Return the files of a folder, then its folders, each in order of names.

        It keeps the names of one folder. Raises OSError.
        """
        names = self._names(folder)
        for name in sorted({*names.files, *names.problems}):
            problem = names.problems.get(name)
            yield TreeEntry(name) if problem is None else problem
        for name in sorted(names.folders):
            yield TreeEntry(name, is_folder=True)

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return these bytes of a file; fewer: the file ends there. Raises OSError."""
        with self.open(path) as stream:
            stream.seek(start)
            return stream.read(end - start)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises OSError, also for a link that leads out."""
        target = self._folder / path
        root = self._folder
        if target.is_symlink():
            target = Path(os.path.realpath(target))
            root = self._real
            if not target.is_relative_to(root):
                raise OSError(errno.ELOOP, _LINK_OUT, path)
        stream = beneath.open_file(root, target)
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            stream.close()
            raise OSError(errno.EINVAL, _SPECIAL, path)
        return stream

    def state(self, path: str) -> FileVersion:
        """Return the size and the version of a file. Raises OSError."""
        found = (self._folder / path).stat()
        return FileVersion(found.st_size, f"{found.st_dev}:{found.st_ino}:{found.st_mtime_ns}")

    def require_there(self) -> None:
        """Raise SourceError if the folder cannot be listed."""
        try:
            with os.scandir(self._folder):
                pass
        except OSError as error:
            raise SourceError(
                f"the folder cannot be read: {error.strerror}; is the path right, is it mounted?",
                is_outage=True,
            ) from error

    def close(self) -> None:
        """Nothing is open."""

    def _names(self, folder: str) -> _Names:
        names = _Names()
        parts = folder.split("/") if folder else []
        here = self._folder / folder
        is_near_ours = any(own.parent == self._real / folder for own in self._ours)
        with beneath.open_folder(self._folder, *parts) as opened, os.scandir(opened) as found:
            for entry in found:
                name = entry.name.encode("utf-8", "surrogateescape").decode(
                    "utf-8", "backslashreplace"
                )
                setting = self._ours.get(self._real / folder / entry.name) if is_near_ours else None
                if setting is not None:
                    names.refuse(name, SeriesReason.REFUSED_BY_HILUM, f"Hilum's own ({setting})")
                elif name != entry.name:
                    names.refuse(name, SeriesReason.UNREADABLE_FILE, _NOT_UTF_8)
                elif entry.is_symlink():
                    self._sort_link(names, here / name, name)
                else:
                    _sort(names, entry, name)
        return names

    def _sort_link(self, names: _Names, link: Path, name: str) -> None:
        target = Path(os.path.realpath(link))
        is_below = target.is_relative_to(self._real)
        if target.is_dir():
            # One below is walked under its own name.
            if not is_below:
                names.refuse(name, SeriesReason.UNREADABLE_FILE, _LINK_TO_FOLDER)
        elif is_below:
            names.files.append(name)
        else:
            names.refuse(name, SeriesReason.UNREADABLE_FILE, _LINK_OUT)


@dataclass(slots=True)
class _Names:
    """The names in one folder."""

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    problems: dict[str, TreeEntry] = field(default_factory=dict)

    def refuse(self, name: str, reason: SeriesReason, detail: str) -> None:
        """Add a name that is not opened."""
        self.problems[name] = TreeEntry(name, reason=reason, detail=detail)


def _sort(names: _Names, entry: os.DirEntry[str], name: str) -> None:
    if entry.is_dir(follow_symlinks=False):
        names.folders.append(name)
    elif entry.is_file(follow_symlinks=False):
        names.files.append(name)
    else:
        names.refuse(name, SeriesReason.NOT_AN_IMAGE, _SPECIAL)
