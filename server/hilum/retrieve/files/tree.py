"""The interface of a folder or a bucket of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from hilum.domain import SeriesReason


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name in a folder. With a `reason` it is not opened, and `detail` says the remedy."""

    name: str
    is_folder: bool = False
    reason: SeriesReason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The size of a file in bytes, and a text that changes when it is written."""

    size: int
    version: str


class FileTree(Protocol):
    """A folder or a bucket. Paths are relative to it, with `/`; empty: the folder itself.

    Any number of threads may use it. Errors: OSError for one file or folder, SourceError where the
    storage does not answer.
    """

    @property
    def address(self) -> str:
        """The absolute path, or the URL."""

    def origin(self, path: str) -> str:
        """Return the absolute path or the URL of a file in it."""

    def path_of(self, origin: str) -> str:
        """Return the path of an origin. Raises SourceError if it is outside."""

    def entries(self, folder: str) -> Iterator[TreeEntry]:
        """Return the files of a folder, then its folders, each in order of names."""

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return these bytes of a file; fewer: the file ends there."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""

    def state(self, path: str) -> FileVersion:
        """Return the size and the version of a file: it is the same file while they are equal."""

    def require_there(self) -> None:
        """Raise SourceError if the folder or the bucket cannot be listed."""

    def close(self) -> None:
        """Release connections; may be called twice."""
