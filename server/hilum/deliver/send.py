"""Files sent as a modality would send them: `hilum send`.

Every file ends with a state. A file that is not DICOM is reported, and the others are sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydicom.dataset import FileMetaDataset
from pydicom.errors import InvalidDicomError
from pydicom.uid import UID, MediaStorageDirectoryStorage
from pynetdicom.dsutils import split_dataset

from hilum.deliver.client import UnknownOutcome
from hilum.deliver.scu.association import OutgoingMessage, Peer, ScuAssociation, associate
from hilum.deliver.scu.command import Response
from hilum.deliver.scu.statuses import STORED_BEFORE, cause, is_stored
from hilum.dicom.tls_client import Tls
from hilum.errors import Refused, Retry

# PS3.8 9.3.2.2: Presentation Context IDs are the odd numbers from 1 to 255
_MAXIMUM_CONTEXTS: Final = 128


class FileState(StrEnum):
    """How the sending of one file ended."""

    SENT = "sent"
    REFUSED = "refused"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class SentFile:
    """One file and the outcome of its sending.

    `detail` contains the remedy, or the receiver's warning where the file was sent. `status` of
    C-STORE; None: no response.
    """

    path: Path
    state: FileState
    detail: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class SendReport:
    """All files in the order in which they were given.

    `is_ok`: there were some, and each was sent or is no DICOM object.
    """

    files: tuple[SentFile, ...]
    sent_bytes: int
    seconds: float

    def count(self, state: FileState) -> int:
        """Files that ended in this state."""
        return sum(item.state is state for item in self.files)

    @property
    def is_ok(self) -> bool:
        """Whether everything that could be sent was sent."""
        return (
            self.count(FileState.SENT) > 0
            and not self.count(FileState.REFUSED)
            and not self.count(FileState.FAILED)
        )


@dataclass(frozen=True, slots=True)
class _Object:
    """A file that can be sent, and the context that it needs."""

    path: Path
    sop_class_uid: str
    sop_instance_uid: str
    transfer_syntax_uid: str
    offset: int

    @property
    def context(self) -> tuple[str, str]:
        return self.sop_class_uid, self.transfer_syntax_uid


Progress = Callable[[SentFile, int, int], None]


def send(
    paths: Iterable[Path],
    host: str,
    port: int,
    called_ae_title: str,
    calling_ae_title: str = "HILUM_SEND",
    progress: Progress | None = None,
    timeout_seconds: float = 30.0,
    tls: Tls | None = None,
) -> SendReport:
    """Send files, and all files below folders, each in its own classes and byte for byte.

    `progress(file, done, total)` is called after each file. No file raises an error: see its state
    in the report.
    """
    peer = Peer(host, port, called_ae_title, calling_ae_title, timeout_seconds, tls)
    started = time.monotonic()
    inspected = [_inspect(path) for path in _files(paths)]
    ended: dict[Path, SentFile] = {}

    def note(item: SentFile) -> None:
        ended[item.path] = item
        if progress is not None:
            progress(item, len(ended), len(inspected))

    for item in inspected:
        if isinstance(item, SentFile):
            note(item)
    for group in _groups([item for item in inspected if isinstance(item, _Object)]):
        for sent in _send_group(group, peer):
            note(sent)
    files = tuple(ended[item.path] for item in inspected)
    sent_bytes = sum(item.path.stat().st_size for item in files if item.state is FileState.SENT)
    return SendReport(files, sent_bytes, time.monotonic() - started)


def _files(paths: Iterable[Path]) -> list[Path]:
    """Return each file once, in a stable order."""
    found = [
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if not file.is_dir()
    ]
    return list(dict.fromkeys(found))


def _inspect(path: Path) -> _Object | SentFile:
    try:
        meta, offset = split_dataset(path)
        length = path.stat().st_size - offset
    except InvalidDicomError:
        return SentFile(
            path, FileState.SKIPPED, "not a DICOM file: no DICM after 128 bytes (PS3.10 7.1)"
        )
    except (OSError, ValueError, EOFError) as error:
        return SentFile(
            path,
            FileState.FAILED,
            f"cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}",
        )
    if (ended := _not_sendable(path, meta, length)) is not None:
        return ended
    return _Object(
        path,
        str(meta.MediaStorageSOPClassUID),
        str(meta.MediaStorageSOPInstanceUID),
        str(meta.TransferSyntaxUID),
        offset,
    )


def _not_sendable(path: Path, meta: FileMetaDataset, length: int) -> SentFile | None:
    """Return the outcome of a DICOM file that is not sent; `length` is its data set's in bytes."""
    wanted = ("MediaStorageSOPClassUID", "MediaStorageSOPInstanceUID", "TransferSyntaxUID")
    if lacking := [keyword for keyword in wanted if not meta.get(keyword)]:
        detail = f"File Meta Information lacks {', '.join(lacking)}; write the file anew"
        return SentFile(path, FileState.FAILED, detail)
    if meta.MediaStorageSOPClassUID == MediaStorageDirectoryStorage:
        detail = "a DICOMDIR; give its folder, and its files are sent"
        return SentFile(path, FileState.SKIPPED, detail)
    if length % 2:
        detail = (
            "its data set has an odd number of bytes, against PS3.5 7.1.1 and A.5; write it anew"
        )
        return SentFile(path, FileState.FAILED, detail)
    return None


def _groups(objects: Sequence[_Object]) -> Iterator[list[_Object]]:
    """Return groups of files whose contexts fit one association; nearly always one group."""
    group: list[_Object] = []
    contexts: set[tuple[str, str]] = set()
    for item in objects:
        if item.context not in contexts and len(contexts) == _MAXIMUM_CONTEXTS:
            yield group
            group = []
            contexts = set()
        group.append(item)
        contexts.add(item.context)
    if group:
        yield group


def _send_group(group: Sequence[_Object], peer: Peer) -> Iterator[SentFile]:
    """Send a group over one association, and over a new one after it broke.

    A receiver that cannot be reached ends the whole group.
    """
    contexts = list(dict.fromkeys(item.context for item in group))
    association: ScuAssociation | None = None
    for number, item in enumerate(group):
        try:
            if association is None or not association.is_established:
                association = associate(peer, contexts)
        except (Retry, Refused) as error:
            yield from (_failed(left, error, peer) for left in group[number:])
            return
        yield _send_one(association, item, peer)
    if association is not None and association.is_established:
        association.release()


def _send_one(association: ScuAssociation, item: _Object, peer: Peer) -> SentFile:
    if association.context(*item.context) is None:
        is_class_known = association.context(item.sop_class_uid) is not None
        return SentFile(
            item.path, FileState.REFUSED, _not_accepted(item, peer, is_class_known=is_class_known)
        )
    try:
        return _answered(item, _store(association, item), peer)
    except UnknownOutcome as error:
        return SentFile(
            item.path,
            FileState.FAILED,
            error.detail.replace("the same bytes are sent again", "it may have arrived"),
        )
    except OSError as error:
        return SentFile(item.path, FileState.FAILED, f"cannot be read: {error.strerror or error}")


def _store(association: ScuAssociation, item: _Object) -> Response:
    with item.path.open("rb") as file:
        file.seek(item.offset)
        size = item.path.stat().st_size - item.offset
        return association.c_store(
            OutgoingMessage(
                item.sop_class_uid, item.sop_instance_uid, item.transfer_syntax_uid, file, size
            )
        )


def _answered(item: _Object, response: Response, peer: Peer) -> SentFile:
    """Return the outcome of a response, with the receiver's comment first.

    The receiver alone knows the cause. Its comment goes to a terminal and into no log.
    """
    status = response.status
    said = f': "{response.comment}"' if response.comment else ""
    if is_stored(status):
        words = (
            "not stored again, it has this SOP Instance UID:"
            if status == STORED_BEFORE
            else "stored, with the warning"
        )
        detail = f"{words} 0x{status:04X}{said}" if status else ""
        return SentFile(item.path, FileState.SENT, detail, status)
    what, is_final = cause(status)
    again = "" if is_final else "; send it again later"
    state = FileState.REFUSED if is_final else FileState.FAILED
    return SentFile(
        item.path, state, f"{peer} answered 0x{status:04X}{said} ({what}){again}", status
    )


def _failed(item: _Object, error: Retry | Refused, peer: Peer) -> SentFile:
    if isinstance(error, Retry):
        return SentFile(item.path, FileState.FAILED, error.detail)
    is_context = error.reason == "sop_class_refused"
    return SentFile(
        item.path, FileState.REFUSED, _not_accepted(item, peer) if is_context else error.detail
    )


def _not_accepted(item: _Object, peer: Peer, *, is_class_known: bool = False) -> str:
    syntax = UID(item.transfer_syntax_uid).name
    name = UID(item.sop_class_uid).name
    remedy = (
        "convert the file"
        if is_class_known
        else f"enable this SOP Class for the AE Title {peer.calling_ae_title} there"
    )
    return f"{peer} does not accept {name} ({item.sop_class_uid}) in {syntax}: {remedy}"
