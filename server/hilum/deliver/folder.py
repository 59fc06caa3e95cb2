"""A folder as destination: a file appears under its name only when it is whole and durable."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from hilum import beneath
from hilum.deliver.client import Probe, ReceiverBusy
from hilum.domain import Document
from hilum.errors import Refused, Retry
from hilum.settings import FolderDestination

_UNSAFE: Final = re.compile(r"[^0-9A-Za-z._@-]")


class FolderClient:
    """The client to a folder: it writes beside the target, syncs, renames.

    The last part of the path is created when it is missing, its parents are not.
    """

    def __init__(self, name: str, destination: FolderDestination) -> None:
        self._name = name
        self._folder = destination.path

    def deliver(self, document: Document) -> None:
        """Return when the file is durable under its final name.

        See `DestinationClient.deliver`.
        """
        name = file_name(document)
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise self._problem(error, Retry) from error
        try:
            with beneath.open_folder(self._folder) as folder:
                if not _holds(folder, name, document.content):
                    _write(folder, name, document.content)
        except OSError as error:  # of the folder, or of this one name
            raise self._problem(error, ReceiverBusy) from error

    def _problem(self, error: OSError, kind: type[Retry]) -> Retry:
        advice = "check that the folder exists, is mounted, is writable and has space"
        return kind(f"{self._folder}: {error.strerror}; {advice}", is_outage=True)

    def probe(self, _limit_seconds: float | None = None) -> Probe:
        """Look whether files can be written there (see `DestinationClient.probe`)."""
        folder = self._folder
        existing = folder if folder.exists() else folder.parent
        is_ok = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
        detail = "writable" if folder.exists() else "will be made with the first document"
        if not is_ok:
            detail = f"{existing} is no folder that this user may write in; make it one"
        return Probe(self._name, str(folder), is_ok=is_ok, detail=detail)

    def close(self) -> None:
        """Do nothing: nothing is held open."""


def file_name(document: Document) -> str:
    """Return the file name of a document: the same document always has the same name."""
    return _UNSAFE.sub("_", document.file_name)


def _holds(folder: int, name: str, content: bytes) -> bool:
    """Return whether the folder has the document.

    Raises Refused for other bytes under its name.

    Other bytes may be a person's work, and are not overwritten. A link under its name is not
    followed: another account may have put it there.
    """
    if not beneath.exists(folder, name):
        return False
    try:
        is_same = beneath.read(folder, name) == content
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        is_same = False
    if not is_same:
        raise Refused(
            "file_exists",
            f"{name} holds other bytes, or is a link; move it away, then requeue the delivery",
        )
    return True


def _write(folder: int, name: str, content: bytes) -> None:
    part = f".{name}.part"
    beneath.remove(folder, part)  # left by a crash, or put there by another account
    beneath.write(folder, part, content, is_durable=True)
    os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)  # the name has to survive a power cut as well
