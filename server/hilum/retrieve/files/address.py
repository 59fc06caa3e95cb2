"""Addresses of folders and buckets: a path, `file://` or `s3://`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from hilum.missing_extra import sentence
from hilum.retrieve.files.local_tree import LocalTree
from hilum.retrieve.files.remote_tree import RemoteTree
from hilum.retrieve.files.tree import FileTree
from hilum.retrieve.source import SourceError

_NO_SETTINGS: Final[Mapping[Path, str]] = MappingProxyType({})
# fsspec's name of a protocol, and the module that it needs.
_REMOTE: Final[Mapping[str, str]] = MappingProxyType({"s3": "s3fs", "memory": "fsspec"})


def open_tree(address: str, ours: Mapping[Path, str] = _NO_SETTINGS) -> FileTree:
    """Return the folder of a path, `file://` URL or `s3://` URL. Raises SourceError.

    `ours`: resolved files and folders of this installation, each with its setting; they are passed
    over. The folder itself need not be there yet.
    """
    scheme = scheme_of(address)
    if not scheme:
        return LocalTree(Path(local_path(address)), ours)
    require_module(scheme)
    return RemoteTree(scheme, address)


def scheme_of(address: str) -> str:
    """Return `s3` or `memory`; empty: a path of this machine. Raises SourceError."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return ""
    if scheme == "file":
        return ""
    if scheme not in _REMOTE or "::" in address:
        raise SourceError(
            "this kind of address is not read; give a path, a file:// or an s3:// URL, or mount"
            " the storage as a folder",
            is_final=True,
        )
    if "@" in rest.partition("/")[0] or "?" in rest.partition("/")[0]:
        raise SourceError(
            "leave credentials out of the URL; they belong in ~/.aws/credentials or in"
            " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            is_final=True,
        )
    return scheme


def local_path(address: str) -> str:
    """Return the path of a `file://` URL; a path as it is. Raises SourceError."""
    if not address.startswith("file://"):
        return address
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        raise SourceError(
            "a file:// URL has three slashes, and names no other machine", is_final=True
        )
    return url2pathname(parts.path)


def require_module(scheme: str) -> None:
    """Raise SourceError if the package for these URLs is not installed."""
    try:
        importlib.import_module(_REMOTE[scheme])
    except ImportError as error:
        remedy = sentence(error) or f"{_REMOTE[scheme]} cannot be imported: {error}"
        raise SourceError(f"{scheme}:// cannot be read: {remedy}", is_final=True) from error
