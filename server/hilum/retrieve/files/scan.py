"""The DICOM files of a folder or a bucket, in an order that can be continued after a cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from hilum.domain import IMAGE_SOP_CLASSES, ExpectedImage, PlannedSeries, SeriesReason
from hilum.retrieve.files.header import FileIdentifiers, NotTaken, read_identifiers_of
from hilum.retrieve.files.tree import FileTree, TreeEntry

_AT_ONCE: Final = 4
_AHEAD: Final = 4  # files in progress for each thread: results are passed on in order
_IMAGES: Final = frozenset(IMAGE_SOP_CLASSES.values())
# A file or a folder of a path: files come first, then folders, each in order of names.
_Step = tuple[bool, str]
_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """One image. `path`: in its folder or bucket, the cursor after which a scan continues."""

    path: str
    series: PlannedSeries
    image: ExpectedImage


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """One file or folder that is not taken. `detail` has the remedy, and no patient data.

    `path`: as of a `ScannedFile`; that of a folder ends with `/`. `origin` may name a patient.
    """

    path: str
    origin: str
    reason: SeriesReason
    detail: str


def scan(
    tree: FileTree,
    after: str = "",
    sop_classes: Collection[str] = _IMAGES,
    at_once: int = _AT_ONCE,
) -> Iterator[ScannedFile | SkippedFile]:
    """Yield each file once, in order: the files of a folder, then its folders.

    `after`: the path of the last file of an earlier scan. `at_once`: files whose beginnings are
    read at the same time. Raises SourceError if the storage does not answer; a later scan may
    continue. Its memory grows with the largest folder, not with the number of files.
    """
    tree.require_there()

    def looked_at(found: _WalkedName) -> ScannedFile | SkippedFile:
        return _looked_at(tree, found, sop_classes)

    with ThreadPoolExecutor(at_once, "hilum-scan") as pool:
        yield from _in_order(pool, looked_at, _walk(tree, after), at_once * _AHEAD)


@dataclass(frozen=True, slots=True)
class _WalkedName:
    """A name in the tree; an entry with a reason is not opened."""

    path: str
    entry: TreeEntry


def _walk(tree: FileTree, after: str) -> Iterator[_WalkedName]:
    """Yield files and unreadable folders behind the cursor. Raises SourceError."""
    open_folders = [("", _entries(tree, "", _steps(after)))]
    while open_folders:
        folder, entries = open_folders[-1]
        try:
            entry, rest = next(entries)
        except StopIteration:
            open_folders.pop()
            continue
        except OSError as error:
            open_folders.pop()
            tree.require_there()
            yield _WalkedName(f"{folder}/", _unreadable(error))
            continue
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_folder:
            open_folders.append((path, _entries(tree, path, rest)))
        else:
            yield _WalkedName(path, entry)


def _unreadable(error: OSError) -> TreeEntry:
    return TreeEntry(
        "",
        reason=SeriesReason.UNREADABLE_FILE,
        detail=f"the folder cannot be read: {error_text(error)}",
    )


def error_text(error: OSError) -> str:
    """Return an error without its path, which may name a patient."""
    return error.strerror or type(error).__name__


def _steps(path: str) -> list[_Step]:
    """Return the steps of a path; each but the last of a file is a folder."""
    if not path:
        return []
    *folders, last = path.split("/")
    steps = [(True, name) for name in folders]
    return [*steps, (False, last)] if last else steps


def _entries(
    tree: FileTree, folder: str, after: list[_Step]
) -> Iterator[tuple[TreeEntry, list[_Step]]]:
    """Yield the entries of a folder behind a cursor, each with the rest of the cursor for it."""
    for entry in tree.entries(folder):
        step = (entry.is_folder, entry.name)
        if not after or step > after[0]:
            yield entry, []
        elif step == after[0] and len(after) > 1:
            yield entry, after[1:]


def _looked_at(
    tree: FileTree, found: _WalkedName, sop_classes: Collection[str]
) -> ScannedFile | SkippedFile:
    path = found.path
    origin = tree.origin(path)
    if found.entry.reason is not None:
        return SkippedFile(path, origin, found.entry.reason, found.entry.detail)
    try:
        read = read_identifiers_of(lambda start, end: tree.read(path, start, end), sop_classes)
    except NotTaken as error:
        return SkippedFile(path, origin, error.reason, error.detail)
    except OSError as error:
        tree.require_there()
        return SkippedFile(
            path,
            origin,
            SeriesReason.UNREADABLE_FILE,
            f"the file cannot be read: {error_text(error)}",
        )
    return _scanned(path, origin, read)


def _scanned(path: str, origin: str, read: FileIdentifiers) -> ScannedFile:
    folder = origin.rpartition("/")[0]
    series = PlannedSeries(
        read.study_instance_uid, read.series_instance_uid, read.day, read.modality, origin=folder
    )
    image = ExpectedImage(read.sop_instance_uid, read.sop_class_uid, origin)
    return ScannedFile(path, series, image)


def _in_order(
    pool: ThreadPoolExecutor,
    function: Callable[[_Given], _Made],
    items: Iterator[_Given],
    most: int,
) -> Iterator[_Made]:
    """Yield the results in the order of the items, at most so many of them in progress."""
    results: deque[Future[_Made]] = deque()
    try:
        for item in items:
            results.append(pool.submit(function, item))
            if len(results) >= most:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()
    finally:
        for result in results:
            result.cancel()
