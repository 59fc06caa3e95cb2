"""The archive in an object store: the local folder is its spool, the store has objects with rows.

    <spool>/unindexed/<process>/<name>.dcm       durable and acknowledged, no row yet
    <prefix>/<n0n1>/<n2n3>/<name>.dcm            its row is committed, or about to be
    <prefix>/quarantine/<n0n1>/<n2n3>/<name>.dcm other pixels under a known UID, or unreadable
    <prefix>/hilum-archive.json                  the marker: whose archive this is

An object is put into the store before its row is committed, so no row names bytes that another host
cannot read. The spool's file is deleted after the commit.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from uuid import uuid4

from hilum.observability import telemetry
from hilum.store.archive.archive import (
    LOST,
    Archive,
    place_of,
    place_of_quarantined,
    quarantine_path,
)
from hilum.store.archive.directory_sync import sync_folder
from hilum.store.archive.durable_rename import Durability
from hilum.store.archive.identity import (
    FILE_NAME,
    ArchiveIdentity,
    drawn_identity,
    parse_identity,
)
from hilum.store.archive.memory_file import MemoryFile, held_in_memory
from hilum.store.archive.object_client import KeyTaken, ObjectClient
from hilum.store.archive.store_errors import StoreAway

_PROBE: Final = "hilum-probe"
_COMPLETE: Final = ".dcm"
_BELIEVED_SECONDS: Final = 30.0  # until the marker is read again before an upload

_log = telemetry.logger("store")
T = TypeVar("T")
R = TypeVar("R")


class ObjectArchive(Archive):
    """The objects below a prefix of an object store, and the spool of this host.

    `root` is the spool. `serial` returns that of the ledger's installation, or None where there is
    no ledger yet. `transfers`: objects moved at once.
    """

    is_remote = True

    def __init__(
        self,
        root: Path,
        process: str = "main",
        write_out_bytes: int = 0,
        durability: Durability = "auto",
        *,
        client: ObjectClient,
        serial: Callable[[], str | None],
        transfers: int = 8,
    ) -> None:
        super().__init__(root, process, write_out_bytes, durability)
        self._client = client
        self._serial = serial
        self._transfers = transfers
        self._threads: ThreadPoolExecutor | None = None
        self._thread_creation = threading.Lock()
        self._ours_until = 0.0  # the marker was read, and was ours
        self._awaiting_rows: set[str] = set()  # places of objects that were put from this spool
        self._at_work = 0
        self._counting = threading.Lock()
        self._worked_until = 0.0
        self.problem = ""

    @property
    def address(self) -> str:
        """The URL of the store."""
        return self._client.url

    @property
    def busy_until(self) -> float:
        """Now while objects are moved or the store is away; else when that ended."""
        if self._at_work or self.problem:
            return time.monotonic()
        return self._worked_until

    # The marker

    @property
    def is_there(self) -> bool:
        """Whether the marker is in the store and is that of this ledger's installation.

        Raises StoreAway, with the cause `not_ours` for another installation's.
        """
        with self._watched():
            try:
                self._require_marker()
            except StoreAway as away:
                if away.cause != "empty":
                    raise
                return False
        return True

    def make(self) -> None:
        """Put the marker, and make the spool. Raises OSError."""
        self.make_spool()
        if (serial := self._serial()) is None:
            raise StoreAway("empty")
        with self._watched():
            self._client.put_bytes(FILE_NAME, drawn_identity(serial).dump())
            self._client.sync()
            self._require_ours()

    def identity(self) -> ArchiveIdentity | None:
        """Which archive the marker names; None: there is no marker. Raises StoreAway."""
        with self._watched():
            return self._marker()

    def _marker(self) -> ArchiveIdentity | None:
        try:
            return parse_identity(bytes(self._client.read(FILE_NAME)))
        except FileNotFoundError:
            return None
        except ValueError:
            raise StoreAway("not_ours") from None

    def _require_ours(self) -> None:
        if time.monotonic() < self._ours_until:
            return
        if (found := self._marker()) is None:
            raise StoreAway("empty")
        if found.installation != self._serial():
            raise StoreAway("not_ours")
        self._ours_until = time.monotonic() + _BELIEVED_SECONDS

    def _require_marker(self) -> None:
        """Read the marker again. If it is gone, no object of ours can be missed here."""
        self._ours_until = 0.0
        self._require_ours()

    @property
    def has_objects(self) -> bool:
        """Whether the prefix holds any object, a marker included."""
        with self._watched():
            return any(not name.startswith(_PROBE) for name in self._client.names())

    # Objects on their way in

    def place_all(self, files: Collection[Path | str]) -> set[Path | str]:
        """Put objects into the store, some at once, and return those that are there now.

        While their rows wait for the ledger, none is put again. A file whose name is taken by other
        bytes, or that cannot be read, is logged and stays in the spool. Raises StoreAway; those
        that were put until then are not put again.
        """
        if new := [file for file in files if place_of(file) not in self._awaiting_rows]:
            with self._watched():
                self._require_ours()
                self._each(self._put, new)
                self._client.sync()
        return {file for file in files if place_of(file) in self._awaiting_rows}

    def place(self, file: Path | str) -> bool:
        """Put one object into the store."""
        return bool(self.place_all([file]))

    def _put(self, file: Path | str) -> None:
        if self._put_as(place := place_of(file), file):
            self._awaiting_rows.add(place)

    def _put_as(self, key: str, file: Path | str) -> bool:
        began = time.monotonic()
        try:
            self._client.put_new(key, Path(file))
        except KeyTaken:
            _log.error(
                "name_taken",
                key=key,
                advice="other bytes are in the store under this name; the file stays in unindexed",
            )
            return False
        except OSError as error:
            if error.errno not in LOST:
                raise
            _log.error(
                "unreadable",
                file=Path(file).name,
                problem=error.strerror,
                advice="left in unindexed for the next start",
            )
            return False
        telemetry.ARCHIVE_UPLOAD_SECONDS.observe(time.monotonic() - began)
        return True

    def settle(self, file: Path | str, *, is_placed: bool = False) -> None:
        """Delete the file of the spool, after its row was committed."""
        if is_placed or self.place(file):
            self._leave_spool(file)

    def take_back(self, file: Path) -> None:
        """Fetch an object from its place back to the unindexed objects of this process."""
        if self._rename is None:
            self._make_inbox()
        target = self._inbox / file.name
        part = target.with_suffix(".part")
        with contextlib.suppress(FileNotFoundError):
            content = self._read(place_of(file))
            with part.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            part.rename(target)
            sync_folder(self._inbox)

    def quarantine(self, file: Path | str) -> None:
        """Move an object out of the way of everything, for a person to look at."""
        with self._watched():
            self._require_ours()
            place = place_of(file)
            if self._put_as(quarantine_path(place), file):
                self._client.sync()
                self._client.delete([place])
                self._leave_spool(file)

    def discard(self, file: Path | str) -> None:
        """Delete an object whose bytes are kept elsewhere."""
        with self._watched():
            self._require_ours()
            self._client.delete([place_of(file)])
        self._leave_spool(file)

    def _leave_spool(self, file: Path | str) -> None:
        self._awaiting_rows.discard(place_of(file))
        Path(file).unlink(missing_ok=True)

    # Objects in the store

    def placed(self) -> Iterator[Path]:
        """Yield every object in its place, as its path would be in a folder."""
        with self._watched():
            for key in self._client.names():
                if key.endswith(_COMPLETE) and key == place_of(key):
                    yield self.root / key

    def quarantined(self) -> Iterator[Path]:
        """Yield every object in quarantine, as its path would be in a folder."""
        with self._watched():
            found = [key for key in self._client.names("quarantine") if key.endswith(_COMPLETE)]
        yield from (self.root / key for key in sorted(found))

    def bring(self, path: str) -> None:
        """Move the object of a row's `path` to that path, into quarantine or out of it."""
        other = _other_side(path)
        with self._watched():
            self._require_ours()
            if self._size(path) is None:
                if self._size(other) is None:
                    return
                self._client.copy(other, path)
                self._client.sync()
            self._client.delete([other])

    def remove(self, path: str, held: contextlib.ExitStack | None = None) -> int:
        """Delete the object of a row's `path`, on both sides of quarantine; return its size."""
        found = self.remove_all([path], held)[path]
        if isinstance(found, OSError):
            raise found
        return found

    def remove_all(
        self,
        paths: Sequence[str],
        held: contextlib.ExitStack | None = None,  # noqa: ARG002 - a store frees space by itself
    ) -> dict[str, int | OSError]:
        """Delete objects by few requests, and return the size of each, or its error."""
        try:
            with self._watched():
                self._require_ours()
                sizes = self._each(self._size_anywhere, paths)
                self._client.delete([key for path in paths for key in (path, _other_side(path))])
            for path in paths:
                for file in self._waiting(path):
                    file.unlink(missing_ok=True)
        except OSError as error:
            return dict.fromkeys(paths, error)
        return dict(zip(paths, sizes, strict=True))

    def sync_names(self, paths: Iterable[str]) -> None:
        """Return when no power cut can bring these objects back: a store's answer says so."""
        del paths
        self._client.sync()
        for folder in self._folders(None):
            sync_folder(folder)

    def exists(self, path: str) -> bool:
        """Whether the object of a row's `path` is there. Raises StoreAway where that is unknown."""
        try:
            self.size_of(path)
        except FileNotFoundError:
            return False
        return True

    def size_of(self, path: str) -> int:
        """Return the size in bytes. Raises FileNotFoundError, StoreAway."""
        if (waiting := self._waiting(path)) and (size := _size_of(waiting[0])) is not None:
            return size
        return len(self._nothing(path)) if (size := self._found(path)) is None else size

    def arrived(self, path: str) -> Path:
        """The file of an object that waits for its row in this spool. Raises FileNotFoundError."""
        if waiting := self._waiting(path):
            return waiting[0]
        raise FileNotFoundError(2, os.strerror(2), path)

    def locate(self, path: str) -> Path:
        """Objects of a store have no path; see `local`."""
        raise RuntimeError(f"{path} has no path in an object store")

    @contextlib.contextmanager
    def local(self, path: str, *, first_bytes: int | None = None) -> Iterator[Path]:
        """Yield a file with the bytes of the object, in memory or in the spool.

        `first_bytes`: it may be cut behind so many.
        """
        with contextlib.ExitStack() as held:
            yield self._readable(path, first_bytes, held)

    def _readable(self, path: str, first: int | None, held: contextlib.ExitStack) -> Path:
        for file in self._waiting(path):
            with contextlib.suppress(FileNotFoundError):  # it was settled; later it stays open
                number = held.enter_context(file.open("rb")).fileno()
                return Path(f"/proc/{os.getpid()}/fd/{number}")
        return held.enter_context(held_in_memory(self._content(path, first)))

    def source(self, path: str) -> Path | bytes:
        """Return the object's bytes, for another process."""
        return bytes(self._content(path))

    def fetch(self, path: str) -> MemoryFile:
        """Return the whole object in memory. Raises FileNotFoundError, StoreAway."""
        return MemoryFile(self._content(path))

    def open(self, path: str) -> BinaryIO:
        """Open the object of a row's `path` for reading. Raises FileNotFoundError, StoreAway."""
        file = MemoryFile(self._content(path))
        try:
            return file.path.open("rb")
        finally:
            file.close()

    def probe(self) -> None:
        """Put, read and delete a small object, and look for it in vain. Raises StoreAway.

        Without the right to list, a store refuses to say that an object is missing.
        """
        key = f"{_PROBE}/{uuid4().hex}"
        with self._watched():
            self._client.put_bytes(key, b"hilum")
            try:
                self._client.read(key)
            finally:
                self._client.delete([key])
            self._size(key)

    def _content(self, path: str, first: int | None = None) -> memoryview:
        for key in (path, _other_side(path), path):  # it may be moved between the first two looks
            with contextlib.suppress(FileNotFoundError):
                return self._read(key, first)
        return self._nothing(path)

    def _read(self, key: str, first: int | None = None) -> memoryview:
        with self._watched():
            return self._client.read(key) if first is None else self._client.read_first(key, first)

    def _nothing(self, path: str) -> memoryview:
        """Raise FileNotFoundError, if this is the archive; else StoreAway."""
        with self._watched():
            self._require_marker()
        raise FileNotFoundError(2, os.strerror(2), path)

    def _found(self, path: str) -> int | None:
        """Return the size on either side of quarantine; None: it is on neither."""
        with self._watched():
            for key in (path, _other_side(path), path):
                if (size := self._size(key)) is not None:
                    return size
        return None

    def _size_anywhere(self, path: str) -> int:
        return self._size(path) or self._size(_other_side(path)) or 0

    def _size(self, key: str) -> int | None:
        try:
            return self._client.size_of(key)
        except FileNotFoundError:
            return None

    def _waiting(self, path: str) -> list[Path]:
        """Return the file of this host's spool, while it waits for its row."""
        name = Path(path).name
        found = (folder / name for folder in self._folders(None))
        return [file for file in found if file.is_file()]

    # Requests

    def _each(self, work: Callable[[T], R], items: Collection[T]) -> list[R]:
        """Return the results, some worked on at once; one at a time after an error of the store.

        On a slow line objects that are sent at once may all come too late, and would again.

        Raises the first error when the work that has begun is over. The rest is left: a store that
        is away would let each request wait for its whole time.
        """
        if len(items) == 1 or self.problem:
            return [work(item) for item in items]
        futures = [self._pool().submit(work, item) for item in items]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        wait(futures)
        return [future.result() for future in futures]

    def _pool(self) -> ThreadPoolExecutor:
        with self._thread_creation:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._transfers, thread_name_prefix="store")
            return self._threads

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Keep in mind whether the store is away, and count errors by cause."""
        with self._counting:
            self._at_work += 1
        try:
            yield
        except StoreAway as away:
            self._say(away)
            raise
        else:
            self._recovered()
        finally:
            with self._counting:
                self._at_work -= 1
                self._worked_until = time.monotonic()

    def _say(self, away: StoreAway) -> None:
        telemetry.ARCHIVE_ERRORS.labels(away.cause).inc()
        telemetry.ARCHIVE_AWAY.set(1)
        said = away.said
        if said != self.problem:
            _log.warning("archive_away", store=self.address, cause=away.cause, advice=away.advice)
        self.problem = said

    def _recovered(self) -> None:
        telemetry.ARCHIVE_AWAY.set(0)
        if self.problem:
            _log.info("archive_back", store=self.address)
        self.problem = ""


def _other_side(path: str) -> str:
    """Return the place of an object in quarantine, and the other way round."""
    place = place_of_quarantined(path)
    return quarantine_path(path) if place == path else place


def _size_of(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
