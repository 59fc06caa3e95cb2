"""Single files that a person has named, by path or by URL."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from hilum.retrieve.files.address import local_path, open_tree, scheme_of
from hilum.retrieve.files.tree import FileTree
from hilum.retrieve.source import SourceError


class Locations:
    """Reads files by absolute path or URL, for any number of threads.

    Links are followed: a person has named the file. Errors: OSError for a file, SourceError.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, FileTree] = {}

    def absolute(self, location: str, folder: str = "") -> str:
        """Return the absolute path, or the URL. `folder`: of relative paths; empty: the current."""
        if "://" in location and scheme_of(location):
            return location
        path = local_path(location)
        if folder and scheme_of(folder) and not path.startswith("/"):
            return f"{folder}/{path}"
        return os.path.normpath(Path(folder or Path.cwd()) / path)

    def open(self, location: str) -> BinaryIO:
        """Open a file. Raises OSError, SourceError."""
        if not scheme_of(location):
            if not stat.S_ISREG(Path(location).stat().st_mode):
                raise OSError(0, "it is no file")
            return Path(location).open("rb")
        bucket, path = self._bucket(location)
        return bucket.open(path)

    def read(self, location: str, size: int) -> bytes:
        """Return the first bytes of a file. Raises OSError, SourceError."""
        if scheme_of(location):
            bucket, path = self._bucket(location)
            return bucket.read(path, 0, size)
        with self.open(location) as stream:
            return stream.read(size)

    def require_there(self, location: str) -> None:
        """Raise SourceError if the bucket of a URL does not answer."""
        if scheme_of(location):
            self._bucket(location)[0].require_there()

    def _bucket(self, location: str) -> tuple[FileTree, str]:
        scheme, _, rest = location.partition("://")
        name, _, path = rest.partition("/")
        if not name or not path:
            raise SourceError("a URL names a bucket and a file in it", is_final=True)
        address = f"{scheme}://{name}"
        if address not in self._buckets:
            self._buckets[address] = open_tree(address)
        return self._buckets[address], path
