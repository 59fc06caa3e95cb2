"""Files of a folder, taken as if they had come by C-STORE.

The writer, the checks and the guarantees are the same.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from pydicom.uid import UID, MediaStorageDirectoryStorage

from hilum.errors import Retry
from hilum.receive.headers import file_meta
from hilum.receive.policy.association_policy import AssociationRejection
from hilum.receive.sinks import NOTE_NOT_PERMITTED, StoreOutcome
from hilum.receive.statuses import OutOfResources, Refusal, TooLarge
from hilum.receive.storage.dispatcher import ObjectDispatcher
from hilum.receive.storage.store_command import StoreCommand
from hilum_preprocessing.header.part10 import is_part10

_CHUNK_BYTES = 1 << 20
IN_CONFLICT: Final = (
    "other pixels under a known SOP Instance UID, or a header that its sender may not correct; "
    "it lies in quarantine until a person decides (`hilum conflicts list`)"
)


class FileOutcome(StrEnum):
    """The outcome of one file."""

    STORED = "stored"
    # the same bytes are in the archive already, or were until their header was corrected
    KNOWN = "known"
    DISCARDED = "discarded"  # a report of our own, or no image
    REFUSED = "refused"
    SKIPPED = "skipped"  # no DICOM object
    FAILED = "failed"  # it cannot be read
    CONFLICT = "conflict"  # see IN_CONFLICT; no person has decided yet


@dataclass(frozen=True, slots=True)
class TakenFile:
    """One file; `detail` contains the remedy unless it is in the archive."""

    path: Path
    fate: FileOutcome
    detail: str = ""


class KnownFiles(Protocol):
    """The objects known to the ledger."""

    def is_disputed(self, sop_instance_uid: str, file: Path) -> bool | None:
        """Return None if this data set has to be taken, else whether it waits in a conflict.

        Raises Retry, and OSError of the file.
        """


def _open(path: Path) -> BinaryIO:
    return path.open("rb")


@dataclass(frozen=True, slots=True)
class FolderIntake:
    """The intake of files, for any number of threads.

    `calling_ae_title`: the sender to record; `called_ae_title`: the title of their route. `wait` is
    called with the reason while the disk is nearly full or the ledger away; the file is tried again
    after it. `rejection`: the reason why no association would be accepted now: files must not take
    the space of urgent images. `open_file`: an opener that does not follow links, where other
    accounts may put links; its OSError names the path.
    """

    reception: ObjectDispatcher
    known: KnownFiles
    calling_ae_title: str
    called_ae_title: str
    wait: Callable[[str], None]
    rejection: Callable[[], AssociationRejection | None] = lambda: None
    open_file: Callable[[Path], BinaryIO] = _open

    def take(self, path: Path) -> TakenFile:
        """Return when the file is durable in the archive, or its other outcome.

        Never raises for a file.
        """
        while True:
            try:
                if _is_special(path):
                    return TakenFile(
                        path, FileOutcome.SKIPPED, "a pipe, a socket or a device, and no file"
                    )
                self._wait_for_room()
                with self.open_file(path) as stream:
                    return TakenFile(path, *self._take(path, stream))
            except TooLarge as error:
                return TakenFile(
                    path, FileOutcome.REFUSED, f"{error.comment} (receive.maximum_object_bytes)"
                )
            except OutOfResources as error:
                self.wait(error.comment)
            except Retry as error:
                self.wait(error.detail)
            except Refusal as error:
                return TakenFile(path, FileOutcome.REFUSED, error.advice)
            except _Unreadable as error:
                return TakenFile(path, FileOutcome.FAILED, str(error))
            except OSError as error:
                if error.filename == str(path):  # it could not be opened
                    return TakenFile(path, FileOutcome.FAILED, f"cannot be read: {error.strerror}")
                self.wait(f"the archive cannot be written ({error.strerror})")

    def _wait_for_room(self) -> None:
        while (rejection := self.rejection()) is not None:
            self.wait(rejection.advice)

    def _take(self, path: Path, stream: BinaryIO) -> tuple[FileOutcome, str]:
        beginning = _read(stream, file_meta.MAXIMUM_BYTES)
        if not is_part10(beginning):
            return FileOutcome.SKIPPED, "not a DICOM file: no DICM after 128 bytes (PS3.10 7.1)"
        meta, start = file_meta.decode_of_others(
            beginning, self.calling_ae_title, self.called_ae_title
        )
        if meta.sop_class_uid == MediaStorageDirectoryStorage:
            return FileOutcome.SKIPPED, "a DICOMDIR; give its folder, and its files are taken"
        command = StoreCommand.of_file(meta)
        # before the ledger is read: a database may refuse an invalid UID
        command.require_consistent()
        if (is_disputed := self._is_disputed(meta.sop_instance_uid, path)) is not None:
            return (FileOutcome.CONFLICT, IN_CONFLICT) if is_disputed else (FileOutcome.KNOWN, "")
        stream.seek(start)
        with contextlib.closing(self.reception.begin(command)) as arriving:
            for chunk in _chunks(stream):
                arriving.write([memoryview(chunk)])
            taken = arriving.commit()
        if taken is StoreOutcome.NOTE_NOT_PERMITTED:
            return FileOutcome.REFUSED, NOTE_NOT_PERMITTED
        return _fate(taken, meta.sop_class_uid)

    def _is_disputed(self, sop_instance_uid: str, path: Path) -> bool | None:
        try:
            return self.known.is_disputed(sop_instance_uid, path)
        except OSError as error:
            raise _Unreadable(f"cannot be read: {error.strerror}") from error


def _fate(taken: StoreOutcome, sop_class_uid: str) -> tuple[FileOutcome, str]:
    if taken is StoreOutcome.OTHER_OBJECT:
        return (
            FileOutcome.DISCARDED,
            (
                f"no image but {UID(sop_class_uid).name}, of which nothing is kept"
                " (receive.other_objects)"
            ),
        )
    return (
        (FileOutcome.DISCARDED, "a report of ours")
        if taken is StoreOutcome.OWN_DOCUMENT
        else (FileOutcome.STORED, "")
    )


class _Unreadable(Exception):
    """An error of the file, not of the archive."""


def _is_special(path: Path) -> bool:
    """Return whether the path is a pipe, a socket or a device. Raises OSError.

    Opening a pipe would wait for its writer.
    """
    mode = path.stat().st_mode
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := _read(stream, _CHUNK_BYTES):
        yield chunk


def _read(stream: BinaryIO, size: int) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror}") from error
