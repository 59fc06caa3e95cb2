"""The archive: received objects as files, with names of our own and never a sender's.

    unindexed/<process>/<name>.part   being received; swept at the next start
    unindexed/<process>/<name>.dcm    durable and acknowledged, no row yet
    <n0n1>/<n2n3>/<name>.dcm          its row is committed, or about to be
    quarantine/<n0n1>/<n2n3>/<name>.dcm   other pixels under a known UID, or unreadable

The scan at start reads `unindexed` alone, however large the archive is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, Self

from hilum.store.archive.borrowed_file import BorrowedFile, WritePolicy
from hilum.store.archive.directory_sync import make_durable_folder, sync_file_system, sync_folder
from hilum.store.archive.durable_rename import Durability, DurableRename, durable_rename_of
from hilum.store.archive.identity import ArchiveIdentity, read_identity
from hilum.store.archive.memory_file import MemoryFile
from hilum.store.archive.pieces import Pieces, behind, without_end
from hilum.store.archive.write_out import start_write_out

_UNINDEXED = "unindexed"
_LOCKS = "locks"
_QUARANTINE = "quarantine"
_MAXIMUM_PIECES = 512  # of one writev; IOV_MAX is 1024
# Page caches hold a file in blocks as large as where a write begins allows: 64 KiB from a multiple
# of 64 KiB, 4 KiB from an odd page.
ALIGNED_BYTES = 64 << 10
_FOLDERS = "[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]"
_PART = ".part"
_COMPLETE = ".dcm"
LOST = frozenset({errno.ENOENT, errno.EIO, errno.EBADMSG, errno.EUCLEAN})
"""Errors of one file: a retry at once would not help, and it must not delay the others."""
# Objects of the same minutes share a folder, because a new folder costs more than to receive an
# object. All folders are used in a year.
_FOLDER_SECONDS = 8 * 60


def quarantine_path(path: str) -> str:
    """The quarantine path, relative to the archive, of an object whose place would be `path`."""
    return f"{_QUARANTINE}/{path}"


def place_of_quarantined(path: str) -> str:
    """The place, relative to the archive, of an object in quarantine."""
    return path.removeprefix(f"{_QUARANTINE}/")


class Free(NamedTuple):
    """The free space of a file system: bytes, and the number of files that it can still hold.

    None: it does not count files, as btrfs.
    """

    bytes: int
    files: int | None = None


def free_in(folder: Path | str) -> Free:
    """The free space in the file system of a folder. A file needs an inode beside its bytes.

    Raises OSError.
    """
    found = os.statvfs(folder)
    return Free(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def place_of(file: Path | str) -> str:
    """The place of a complete object, relative to the archive.

    It depends on the file's own name only.
    """
    name = os.path.basename(file)  # noqa: PTH119 - see `Archive.place`
    return f"{name[:2]}/{name[2:4]}/{name}"


class Archive:
    """The files below `root`.

    `process` names the folder of objects that this process receives; readers need none.

    `write_out_bytes`: after so many bytes of an object the disk is asked to begin with them; 0: at
    its end. All writes of an object but the first and the last end at multiples of ALIGNED_BYTES.
    `durability`: see `durable_rename`. `object_archive` keeps the same interface over an object
    store: `is_remote`; `problem` says why it is away.
    """

    is_remote = False
    problem = ""

    def __init__(
        self,
        root: Path,
        process: str = "main",
        write_out_bytes: int = 0,
        durability: Durability = "auto",
    ) -> None:
        if Path(process).name != process:
            raise ValueError(f"{process!r} cannot name a folder")
        self.root = root
        self._root = str(root)
        self.process = process
        self._inbox = root / _UNINDEXED / process
        self._writing = WritePolicy(write_out_bytes, ALIGNED_BYTES)
        self._name_sync = durability
        self._rename: DurableRename | None = None  # of the inbox, once it is there
        self._creation = threading.Lock()

    @property
    def address(self) -> str:
        """Where the objects are, for people."""
        return self._root

    @property
    def busy_until(self) -> float:
        """Until when an object store kept rows waiting (time.monotonic()). A folder never does."""
        return 0.0

    def begin(self) -> Incoming:
        """Begin a new object, invisible until it is committed. Raises OSError."""
        rename = self._rename or self._make_inbox()
        try:
            return self._incoming(rename)
        except FileNotFoundError:
            # Objects taken while the file system is away would be hidden when it comes back.
            if not self.is_begun_here:
                raise
            return self._incoming(self._make_inbox())

    def _incoming(self, rename: DurableRename) -> Incoming:
        return Incoming(self._inbox, rename, self._writing)

    def _make_inbox(self) -> DurableRename:
        with self._creation:
            make_durable_folder(self._inbox)
            self._rename = rename = durable_rename_of(self._inbox, self._name_sync)
            return rename

    # These steps take each object's name as text: to make a Path and ask it for its name costs more
    # than a step.

    def place_all(self, files: Collection[Path | str]) -> set[Path | str]:
        """Give objects their places; see `place`. Return those that have theirs now."""
        return {file for file in files if self.place(file)}

    def place(self, file: Path | str) -> bool:
        """Give an object its place as a second name, before its row is committed.

        So a row never names a file that is not there. Returns whether the object has its place now.
        Where the file system has no hard links, or no room, `settle` moves the file after the
        commit.
        """
        target = self._target(file)
        try:
            os.link(file, target)
        except FileNotFoundError:  # its folder has no object yet
            return _link_into_new_folder(file, target)
        except OSError:
            return False
        return True

    def settle(self, file: Path | str, *, is_placed: bool = False) -> None:
        """Take an object out of `unindexed`, after its row was committed.

        `is_placed`: the result of `place`. Nothing is synced: links and renames are atomic and in
        order in the file system's journal, and the scan at start repeats them.
        """
        target = self._target(file)
        if is_placed or os.path.exists(target):  # noqa: PTH110 - see `place`
            _unlink(file)
        else:
            _move(Path(file), Path(target))

    def _target(self, file: Path | str) -> str:
        """The place of an object as a path."""
        return f"{self._root}/{place_of(file)}"

    def take_back(self, file: Path) -> None:
        """Move an object from its place back to the unindexed objects of this process.

        An object that is gone meanwhile is skipped.
        """
        if self._rename is None:
            self._make_inbox()
        with contextlib.suppress(FileNotFoundError):
            file.rename(self._inbox / file.name)

    def placed(self) -> Iterator[Path]:
        """Yield every object in its place, folder by folder."""
        for folder in sorted(self.root.glob(_FOLDERS)):
            yield from (
                file for file in folder.glob(f"*{_COMPLETE}") if file == self.root / place_of(file)
            )

    def quarantine(self, file: Path | str) -> None:
        """Move an object out of the way of everything, for a person to look at."""
        _unlink(self._target(file))
        _move(Path(file), self.root / quarantine_path(place_of(file)))

    def discard(self, file: Path | str) -> None:
        """Delete an object whose bytes are kept elsewhere."""
        _unlink(self._target(file))
        _unlink(file)

    def bring(self, path: str) -> None:
        """Move the object of a row's `path` to that path, into quarantine or out of it.

        It is looked for in all places. Idempotent. An object that is not found is skipped.
        """
        target = self.root / path
        for file in self._candidates(path):
            if file == target or not file.is_file():
                continue
            if target.is_file():
                file.unlink()
            else:
                _move(file, target)

    def remove(self, path: str, held: contextlib.ExitStack | None = None) -> int:
        """Delete the object of a row's `path`, under all its names, and return its size in bytes.

        0: there was none. With `held` the names are deleted at once; the space, which takes long,
        is freed when `held` is closed. (On NFS a client that dies in between leaves a file `.nfs…`,
        which the administrator of its server sweeps.) Raises OSError.
        """
        size_bytes = 0
        for file in self._candidates(path):
            with contextlib.suppress(FileNotFoundError):
                size_bytes = file.stat().st_size
                if held is not None:
                    # If it cannot be opened once more, its space is freed now.
                    with contextlib.suppress(OSError):
                        held.enter_context(file.open("rb"))
                file.unlink()
        return size_bytes

    def remove_all(
        self, paths: Sequence[str], held: contextlib.ExitStack | None = None
    ) -> dict[str, int | OSError]:
        """Delete objects; see `remove`. Return the size of each, or its error."""
        return {path: self._removed(path, held) for path in paths}

    def _removed(self, path: str, held: contextlib.ExitStack | None) -> int | OSError:
        try:
            return self.remove(path, held)
        except OSError as error:
            return error

    def sync_names(self, paths: Iterable[str]) -> None:
        """Return when a power cut can no longer bring these objects back.

        Deleted names are durable with their folders. Raises OSError.
        """
        for folder in sorted({file.parent for path in paths for file in self._candidates(path)}):
            with contextlib.suppress(FileNotFoundError):
                sync_folder(folder)

    def quarantined(self) -> Iterator[Path]:
        """Yield every object in quarantine."""
        yield from sorted((self.root / _QUARANTINE).rglob(f"*{_COMPLETE}"))

    @property
    def is_there(self) -> bool:
        """Whether this is an archive.

        The empty folder of a file system that is not mounted must not pass for one.
        """
        return self.is_begun_here

    @property
    def is_begun_here(self) -> bool:
        """Whether the folders of received objects are there, on this host."""
        return (self.root / _LOCKS).is_dir()

    def identity(self) -> ArchiveIdentity | None:
        """Which archive this is; None: that is not known yet. Raises OSError."""
        return read_identity(self.root)

    def make(self) -> None:
        """Create the archive, once the ledger agrees (`consistency`). Raises OSError."""
        self.make_spool()

    def make_spool(self) -> None:
        """Make the folders that this host needs to receive. Raises OSError."""
        (self.root / _LOCKS).mkdir(parents=True, exist_ok=True)

    @property
    def has_objects(self) -> bool:
        """Whether the archive holds any object. Stops at the first."""
        places = (f"*/*/*{_COMPLETE}", f"{_QUARANTINE}/*/*/*{_COMPLETE}")
        return any(True for place in places for _ in self.root.glob(place))

    def open(self, path: str) -> BinaryIO:
        """Open the object of a row's `path` for reading; it may be elsewhere, see `_candidates`.

        Raises FileNotFoundError.
        """
        for file in self._candidates(path):
            with contextlib.suppress(FileNotFoundError):
                return file.open("rb")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def locate(self, path: str) -> Path:
        """The present path of the object of a row's `path`.

        It may be moved at any moment, so read it by `open`. Raises FileNotFoundError.
        """
        for file in self._candidates(path):
            if file.is_file():
                return file
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def arrived(self, path: str) -> Path:
        """The file of an object that waits for its row. Raises FileNotFoundError."""
        return self.locate(path)

    def exists(self, path: str) -> bool:
        """Whether the object of a row's `path` is there. Raises OSError where that is unknown."""
        try:
            self.locate(path)
        except FileNotFoundError:
            return False
        return True

    def size_of(self, path: str) -> int:
        """Return the size in bytes of the object of a row's `path`. Raises OSError."""
        return self.locate(path).stat().st_size

    @contextlib.contextmanager
    def local(self, path: str, *, first_bytes: int | None = None) -> Iterator[Path]:
        """Yield a path at which the bytes of a row's object can be read in this block.

        `first_bytes`: the file may be cut behind so many. Raises FileNotFoundError.
        """
        del first_bytes  # an object store need not send the rest
        yield self.locate(path)

    def source(self, path: str) -> Path | bytes:
        """Return the path for a reader in another process, or the bytes of an object store.

        Raises FileNotFoundError.
        """
        return self.locate(path)

    def probe(self) -> None:
        """Try the rights that an object store must give. A folder has checks of its own."""

    def fetch(self, path: str) -> MemoryFile:
        """Return the whole object in memory. Raises FileNotFoundError, OSError."""
        return MemoryFile(self.locate(path).read_bytes())

    def _candidates(self, path: str) -> Iterator[Path]:
        """Yield the paths at which an object may be.

        Its place, `unindexed` before it is settled, and the other side of quarantine while it is
        moved. Its place comes last once more: it may be settled between the first look and the
        search.
        """
        yield self.root / path
        for folder in self._folders(None):
            yield folder / Path(path).name
        place = place_of_quarantined(path)
        yield self.root / (quarantine_path(path) if place == path else place)
        yield self.root / path

    def unindexed(self, process: str | None = None) -> Iterator[Path]:
        """Yield complete objects without a settled row, of one process or of all."""
        for folder in self._folders(process):
            yield from sorted(folder.glob(f"*{_COMPLETE}"))

    def left_behind(self, processes: Iterable[str]) -> list[Path]:
        """Complete objects of dead processes, oldest first over all of them.

        All are made durable: a process may have died between an object's name and its sync.
        """
        files = [file for process in processes for file in self.unindexed(process)]
        if files:
            sync_file_system(self.root)
        return sorted(files, key=_came_at)

    @contextlib.contextmanager
    def held(self, process: str) -> Iterator[bool]:
        """Lock a process's folder; False: a live process holds it.

        That process may be on another host of a shared archive. The kernel drops the lock with its
        owner, so a killed listener's folder can be recovered at once. Raises FileNotFoundError
        where there is no archive.
        """
        path = self._lock(process)
        while True:
            with path.open("w") as lock:
                is_ours = _locks(lock)
                # Else `forget_gone` was faster, and others would lock another file.
                if not is_ours or _is_at(lock, path):
                    yield is_ours
                    return

    def forget_gone(self, before: float) -> list[str]:
        """Delete the empty folders and locks of dead processes, and return their names.

        `before`: seconds since the epoch; a folder with anything younger stays. Every look for an
        object goes through all folders, and new hosts bring new names. Raises OSError.
        """
        locks = (lock.stem for lock in (self.root / _LOCKS).glob("*.lock"))
        return [
            process
            for process in sorted({*locks, *self.processes()})
            if self._is_gone(process, before)
        ]

    def _is_gone(self, process: str, before: float) -> bool:
        lock = self._lock(process)
        folder = self.root / _UNINDEXED / process
        touched = [path.stat().st_mtime for path in (lock, folder) if path.exists()]
        if max(touched, default=before) >= before or (folder.exists() and any(folder.iterdir())):
            return False
        with self.held(process) as is_ours:
            if not is_ours:
                return False
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()
            lock.unlink()
        return True

    def _lock(self, process: str) -> Path:
        return self.root / _LOCKS / f"{process}.lock"

    def processes(self) -> list[str]:
        """Names of all processes that ever received into this archive."""
        return [folder.name for folder in self._folders(None)]

    def sweep(self, process: str | None = None) -> int:
        """Delete objects that were never acknowledged.

        Only while no process receives into these folders. Raises OSError.
        """
        parts = [
            file
            for folder in self._folders(process)
            for file in _files_of(folder)
            if file.suffix == _PART
        ]
        for file in parts:
            file.unlink()
        return len(parts)

    def _folders(self, process: str | None) -> list[Path]:
        unindexed = self.root / _UNINDEXED
        if process is not None:
            return [unindexed / process]
        return sorted(unindexed.iterdir()) if unindexed.is_dir() else []

    def free(self) -> Free:
        """The free space in the file system of the archive, or in that where it will be.

        Raises OSError.
        """
        try:
            return free_in(self._root)
        except FileNotFoundError:
            return free_in(
                next(folder for folder in self.root.absolute().parents if folder.exists())
            )


class Incoming:
    """One object being received.

    Left without `commit`, as by an exception, it leaves nothing behind. `file`: the final path.
    """

    def __init__(self, folder: Path, rename: DurableRename, writing: WritePolicy) -> None:
        name = f"{folder}/{new_name(time.time())}"
        self._part = f"{name}{_PART}"
        self.file = f"{name}{_COMPLETE}"
        self._rename = rename
        self._writing = writing
        self._written_out = 0
        self._fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        self._is_committed = False
        self._end = b""  # comes next
        self.size_bytes = 0
        self.modified_at = 0.0

    def write(self, *pieces: bytes | memoryview) -> None:
        """Take all bytes of the pieces, or raise OSError.

        The end may stay in memory until more comes, or `commit`.
        """
        ready: Pieces = (self._end, *pieces) if self._end else pieces
        come = sum(map(len, ready))
        is_first = self.size_bytes == 0 and not self._end
        if not is_first or come < self._writing.aligned_bytes:
            behind_last = (self.size_bytes + come) % self._writing.aligned_bytes
            if behind_last >= come:
                self._end = b"".join(ready)
                return
            ready, self._end = without_end(ready, behind_last)
        self._write_all(ready)
        self._write_out()

    def borrow(self) -> BorrowedFile:
        """Lend the open file, behind the first write, to a caller that writes by itself."""
        return BorrowedFile(self._fd, self.size_bytes, self._end, self._written_out, self._writing)

    def give_back(self, borrowed: BorrowedFile) -> None:
        """Take the file back, also after an error."""
        self.size_bytes = borrowed.size_bytes
        self._end = borrowed.end
        self._written_out = borrowed.written_out

    def _write_all(self, pieces: Pieces) -> None:
        for begin in range(0, len(pieces), _MAXIMUM_PIECES):
            self._write(pieces[begin : begin + _MAXIMUM_PIECES])

    def _write(self, pieces: Pieces) -> None:
        size = sum(map(len, pieces))
        while (count := os.writev(self._fd, pieces)) < size:
            # A nearly full disk writes a part and says so only in the count.
            self.size_bytes += count
            pieces = behind(pieces, count)
            size = size - count
        self.size_bytes += count

    def _write_out(self) -> None:
        if (least := self._writing.write_out_bytes) and (
            count := self.size_bytes - self._written_out
        ) >= least:
            start_write_out(self._fd, self._written_out, count)
            self._written_out = self.size_bytes

    def commit(self) -> Path:
        """Make the object durable, and return its path."""
        self.make_durable()
        return Path(self.file)

    def make_durable(self) -> None:
        """Make the object durable under its final name, `file`; only then may it be acknowledged.

        Raises OSError.
        """
        self._write_all([self._end] if self._end else [])
        self._rename.flush(self._fd)
        found = os.fstat(self._fd)
        if found.st_size != self.size_bytes:
            raise OSError(errno.EIO, f"{found.st_size} of {self.size_bytes} bytes are in the file")
        self.modified_at = found.st_mtime
        os.rename(self._part, self.file)  # noqa: PTH104 - see `Archive.place`
        self._rename.commit()
        self._is_committed = True

    def abort(self) -> None:
        """Remove every trace."""
        _unlink(self._part)
        _unlink(self.file)

    def __enter__(self) -> Self:
        """Enter the context; `close` ends it."""
        return self

    def close(self) -> None:
        """Close, and remove the file if it was not committed. May be called twice."""
        os.close(self._fd)
        if not self._is_committed:
            self.abort()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def new_name(now: float) -> str:
    """Return 32 hexadecimal digits, of which the first four name the folder (`place_of`).

    The next fourteen are microseconds. After a crash objects are taken in the order in which they
    came: of two under one SOP Instance UID, the first pixels and the last header are authoritative.
    """
    # No secret, but unlike any other's: Python seeds it from the system, in each process.
    drawn = random.getrandbits(56)
    return f"{int(now / _FOLDER_SECONDS) & 0xFFFF:04x}{int(now * 1e6):014x}{drawn:014x}"


def _locks(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether the path still names this open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _came_at(file: Path) -> str:
    """The part of its name that says when it came."""
    return file.name[4:]


def _files_of(folder: Path) -> list[Path]:
    """The files of a folder.

    `glob` would call a folder without permission empty; this raises.
    """
    try:
        return [folder / name for name in os.listdir(folder)]  # noqa: PTH208 - names are enough
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unlink(file: Path | str) -> None:
    """Delete a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)  # noqa: PTH108 - see `Archive.place`


def _link_into_new_folder(file: Path | str, target: str) -> bool:
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        os.link(file, target)
    except OSError:
        return False
    return True


def _move(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    file.rename(target)
