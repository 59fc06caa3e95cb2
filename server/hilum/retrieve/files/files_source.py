"""A folder or a bucket of DICOM files as a source of images."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO, Final

from hilum.domain import IMAGE_SOP_CLASSES, ExpectedImage, SeriesReason
from hilum.retrieve.files.header import NotTaken, read_identifiers_of
from hilum.retrieve.files.parallel_fetch import FetchLimit, ParallelFetch
from hilum.retrieve.files.scan import error_text
from hilum.retrieve.files.tree import FileTree, FileVersion
from hilum.retrieve.source import (
    Answers,
    FetchReport,
    FetchRequest,
    IncomingPart,
    ObjectStore,
    PartOutcome,
    ProbeLine,
    Query,
    SourceError,
)

_CHUNK_BYTES: Final = 1 << 20
_IMAGES: Final = frozenset(IMAGE_SOP_CLASSES.values())


class FilesSource:
    """DICOM files below one folder or URL. A plan finds them, and not a query.

    `begin` of the store is called in four threads at once, and each part is used by one of them.
    """

    def __init__(self, tree: FileTree, sop_classes: Collection[str] = _IMAGES) -> None:
        self._tree = tree
        self._sop_classes = sop_classes
        self._parallel = ParallelFetch()

    def probe(self) -> Sequence[ProbeLine]:
        """Say whether the folder or the bucket can be listed. Never raises."""
        return probe_tree(self._tree)

    def find(self, query: Query) -> Answers:  # noqa: ARG002 - the interface
        """Raise SourceError: files are scanned, and not queried."""
        raise not_queried()

    def images(
        self,
        study_instance_uid: str,  # noqa: ARG002 - the interface
        series_instance_uid: str,  # noqa: ARG002
    ) -> Sequence[ExpectedImage]:
        """Raise SourceError: the plan has found the images already."""
        raise not_queried()

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """Copy the file of each image into the store.

        A file that holds another image than planned is not given to the store, and one that was
        written to meanwhile is abandoned. The report names them.
        """

        def copy(image: ExpectedImage, limit: FetchLimit) -> PartOutcome:
            return _copied(self._tree, self._sop_classes, image, store, limit)

        return self._parallel.fetch(wanted, stop, copy)

    def close(self) -> None:
        """End the threads; may be called twice."""
        self._parallel.close()
        self._tree.close()


def not_queried() -> SourceError:
    """Return the error for a query of files."""
    return SourceError(
        "files answer no query; plan the campaign from a folder, a bucket or a list",
        is_final=True,
    )


def probe_tree(tree: FileTree) -> Sequence[ProbeLine]:
    """Return a line that says whether a folder can be listed. Never raises."""
    try:
        tree.require_there()
    except SourceError as error:
        return [ProbeLine("folder", error.detail, is_ok=False)]
    return [ProbeLine("folder", f"{tree.address} can be listed", is_ok=True)]


def _copied(
    tree: FileTree,
    sop_classes: Collection[str],
    image: ExpectedImage,
    store: ObjectStore,
    limit: FetchLimit,
) -> PartOutcome:
    """Copy one file; its problem is in the outcome. Raises SourceError, FetchInterrupted."""
    try:
        with reads(tree):
            path = tree.path_of(image.origin)
            _require_planned(tree, path, sop_classes, image)
            before = tree.state(path)
            stream = tree.open(path)
        with contextlib.closing(stream):
            return _streamed(tree, path, before, stream, store.begin(image.origin), limit)
    except NotTaken as error:
        return PartOutcome(image.sop_instance_uid, error.detail)
    except UnreadableNow as error:
        return PartOutcome(image.sop_instance_uid, str(error), is_transient=True)


def _streamed(
    tree: FileTree,
    path: str,
    before: FileVersion,
    stream: BinaryIO,
    part: IncomingPart,
    limit: FetchLimit,
) -> PartOutcome:
    """Copy an open file. A part that is not whole is abandoned."""
    try:
        size = 0
        for piece in pieces(tree, stream):
            limit.check()
            part.write(piece)
            size += len(piece)
            if size > before.size:  # it may grow as fast as it is read
                break
        with reads(tree):
            after = tree.state(path)
    except BaseException:
        part.abandon()
        raise
    if after != before or size != before.size:
        part.abandon()
        raise UnreadableNow("the file was written to while it was read")
    return part.end()


class UnreadableNow(Exception):
    """A file that cannot be read at the moment. The message has no path."""


@contextlib.contextmanager
def reads(tree: FileTree) -> Iterator[None]:
    """Turn the OSError of a file into NotTaken or UnreadableNow.

    Raises SourceError where the whole folder is away.
    """
    try:
        yield
    except FileNotFoundError:
        tree.require_there()
        raise NotTaken(SeriesReason.UNREADABLE_FILE, "the file is not there") from None
    except OSError as error:
        tree.require_there()
        raise UnreadableNow(f"the file cannot be read: {error_text(error)}") from None


def pieces(tree: FileTree, stream: BinaryIO) -> Iterator[bytes]:
    """Yield an open file piece by piece. Raises UnreadableNow, NotTaken, SourceError."""
    while True:
        with reads(tree):
            piece = stream.read(_CHUNK_BYTES)
        if not piece:
            return
        yield piece


def _require_planned(
    tree: FileTree, path: str, sop_classes: Collection[str], image: ExpectedImage
) -> None:
    """Raise NotTaken if the file holds another image than when it was planned."""
    found = read_identifiers_of(lambda start, end: tree.read(path, start, end), sop_classes)
    if found.sop_instance_uid != image.sop_instance_uid:
        raise NotTaken(
            SeriesReason.CONFLICT,
            "the file holds another image than when it was planned; plan the folder again",
        )
