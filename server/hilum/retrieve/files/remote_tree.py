"""A bucket, or another storage that fsspec reads."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from hilum.domain import SeriesReason
from hilum.retrieve.files.tree import FileVersion, TreeEntry
from hilum.retrieve.source import SourceError

_BLOCK_BYTES: Final = 4 << 20


class RemoteTree:
    """A bucket or a prefix of it, over fsspec, which takes its credentials from its environment.

    Listings are not cached: a bucket may have millions of objects.
    """

    def __init__(self, scheme: str, address: str) -> None:
        fsspec = importlib.import_module("fsspec")
        self._scheme = scheme
        self._files: Any = fsspec.filesystem(scheme, use_listings_cache=False)
        root: str = self._files._strip_protocol(address)  # noqa: SLF001 - its documented form
        self._root = root.rstrip("/")

    @property
    def address(self) -> str:
        """The URL."""
        return f"{self._scheme}://{self._root.lstrip('/')}"

    def origin(self, path: str) -> str:
        """Return the URL of a file in it."""
        return f"{self.address}/{path}"

    def path_of(self, origin: str) -> str:
        """Return the path of an origin. Raises SourceError if it is outside."""
        start = f"{self.address}/"
        if not origin.startswith(start):
            raise SourceError("the file is not below the URL of this campaign", is_final=True)
        return origin.removeprefix(start)

    def entries(self, folder: str) -> Iterator[TreeEntry]:
        """Return the files of a folder, then its folders, each in order of names.

        It keeps the names of one folder. Raises OSError, SourceError.
        """
        files, folders = self._names(self._path(folder))
        for name in sorted(files):
            yield _file_entry(name)
        for name in sorted(folders):
            yield TreeEntry(name, is_folder=True)

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return these bytes of a file; fewer: the file ends there. Raises OSError, SourceError.

        It is one request. A range that begins at the end of the object is an error of S3.
        """
        full = self._path(path)
        with self._answers():
            try:
                return cast(bytes, self._files.cat_file(full, start=start, end=end))
            except (FileNotFoundError, PermissionError):
                raise
            except OSError:
                if int(self._files.info(full)["size"]) <= start:
                    return b""
                raise

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Raises OSError, SourceError."""
        with self._answers():
            return cast(BinaryIO, self._files.open(self._path(path), "rb", block_size=_BLOCK_BYTES))

    def state(self, path: str) -> FileVersion:
        """Return the size and the version of a file. Raises OSError, SourceError."""
        with self._answers():
            found = self._files.info(self._path(path))
        version = found.get("ETag") or found.get("LastModified") or found.get("created")
        return FileVersion(int(found["size"]), str(version))

    def require_there(self) -> None:
        """Raise SourceError if the bucket cannot be listed."""
        try:
            with self._answers():
                next(iter(self._files.ls(self._root, detail=False)), None)
        except OSError as error:
            raise SourceError(
                f"{self.address} cannot be listed ({type(error).__name__}); check the address,"
                " the credentials and the right to list it",
                is_outage=not isinstance(error, FileNotFoundError | PermissionError),
                is_final=isinstance(error, FileNotFoundError | PermissionError),
            ) from error

    def close(self) -> None:
        """Connections belong to fsspec, which keeps them for the process."""

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/") if path else self._root

    def _names(self, folder: str) -> tuple[list[str], list[str]]:
        files: list[str] = []
        folders: list[str] = []
        with self._answers():
            for found in self._files.ls(folder, detail=True):
                full = str(found["name"]).rstrip("/")
                # The object that some tools write for an empty folder.
                if full == folder:
                    continue
                name = full.rpartition("/")[2]
                (folders if found["type"] == "directory" else files).append(name)
        return files, folders

    @contextlib.contextmanager
    def _answers(self) -> Iterator[None]:
        """Raise SourceError for an error that is not of a file.

        fsspec raises OSError for an answer of the storage. Without an answer the errors are those
        of its HTTP client, which have no class in common.
        """
        try:
            yield
        except (OSError, SourceError):
            raise
        except Exception as error:
            raise SourceError(
                f"{self._scheme}:// does not answer ({type(error).__name__}); check the network,"
                " the endpoint (AWS_ENDPOINT_URL) and the credentials",
                is_outage=True,
            ) from error


def _file_entry(name: str) -> TreeEntry:
    if name.isprintable():
        return TreeEntry(name)
    return TreeEntry(
        ascii(name),
        reason=SeriesReason.UNREADABLE_FILE,
        detail="its name has control characters; rename it",
    )
