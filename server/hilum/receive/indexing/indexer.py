"""Indexing of acknowledged files: in batches, off the association's threads, with retries.

The files are the queue. Memory holds a list of their names only. After a crash the scan at start
finds them again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from hilum.backoff import Backoff
from hilum.domain import Instance
from hilum.observability import telemetry, tracing
from hilum.receive.indexing import same_object
from hilum.receive.indexing.arrivals import arrivals_of
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.missing_files import keep_only_copies
from hilum.receive.indexing.priority_folder import with_priority_of_folder
from hilum.receive.statuses import CannotUnderstand
from hilum.receive.threads import start_thread
from hilum.settings import Settings
from hilum.store.archive.archive import LOST, Archive
from hilum.store.ledger import Arrival, Ledger, RecordOutcome, StudyDecided

_log = telemetry.logger("receive")

BATCH = 256
# A single image has its row a moment later. While more come in, the batch waits until a look finds
# no more, or for 100 ms. A batch costs half a millisecond of CPU and each of its images a tenth of
# that, taken from the threads that receive.
_MOMENT_SECONDS = 0.004
_LOOK_SECONDS = 0.01
_GATHER_SECONDS = 0.1
_MAXIMUM_BACKLOG = 10_000
# Known facts of a waiting file are kept in memory, each with the bounded header of its row. The
# other files are read again.
_MAXIMUM_KNOWN = 1_000
_PATIENCE_SECONDS = 60.0
_CLOSED = frozenset({errno.EACCES, errno.EPERM})  # as LOST, for a file of another user
File = Path | str
"""Text for incoming files (see `Archive.place`), a Path for files found by a scan."""
_NOTHING: Mapping[File, Instance] = MappingProxyType({})
Seen = Callable[[Sequence[Arrival]], None]
"""Takes images that have just got their rows. It is called by the indexing, so it never waits."""
_CONFLICT_ADVICE = {
    RecordOutcome.CONFLICT: (
        "other pixels under a known SOP Instance UID; the first ones stay in use"
    ),
    RecordOutcome.HEADER_CONFLICT: (
        "another header from a sender that may not correct this image; the first one stays in use: "
        "decide with `hilum conflicts`, or set may_correct in the sender's section of senders"
    ),
}
_BACKOFF = Backoff(0.25, 5.0)


def unseen(_arrivals: Sequence[Arrival]) -> None:
    """Do nothing with new images."""


class PendingFile(NamedTuple):
    """A durable file that waits for its row.

    `instance`: the facts learnt while it came in. `is_left_behind`: see Arrival.
    """

    file: File
    instance: Instance | None
    at: float
    is_left_behind: bool = False


def index(
    files: Sequence[File],
    settings: Settings,
    ledger: Ledger,
    archive: Archive,
    known: Mapping[File, Instance] = _NOTHING,
    left_behind: Collection[File] = (),
    seen: Seen = unseen,
) -> Counter[RecordOutcome]:
    """Record these files and move each according to its outcome. Idempotent.

    Raises SQLAlchemyError with nothing lost. A file that cannot be read as DICOM goes to
    quarantine, and so does one that the ledger refuses for its content. `known`: files that need
    not be read again. `left_behind`: those of a process that died (see Arrival). `seen`: takes
    the images that are new.
    """
    lost = LOST | _CLOSED if left_behind else LOST
    described = {
        file: instance
        for file in files
        if (instance := known.get(file) or _described(file, ledger, archive, lost)) is not None
    }
    placed = archive.place_all(described)
    if archive.is_remote:  # no row names bytes that another host cannot read
        described = {file: found for file, found in described.items() if file in placed}
    try:
        with telemetry.cpu("index_ledger"):
            outcomes = _recorded(described, settings, ledger, archive, left_behind, seen)
    except (DataError, IntegrityError) as error:
        again = partial(
            index,
            settings=settings,
            ledger=ledger,
            archive=archive,
            left_behind=left_behind,
            seen=seen,
        )
        return _index_singly(list(described), error, archive, again)
    for (file, instance), outcome in zip(described.items(), outcomes, strict=True):
        _settle(file, outcome, archive, is_placed=file in placed)
        _write_span(instance, outcome)
    counted = Counter(outcomes)
    for outcome, count in counted.items():
        telemetry.INSTANCES_RECEIVED.labels(outcome=outcome.value).inc(count)
    return counted


def _recorded(
    described: Mapping[File, Instance],
    settings: Settings,
    ledger: Ledger,
    archive: Archive,
    left_behind: Collection[File],
    seen: Seen,
) -> list[RecordOutcome]:
    """Record the files, and return the outcome of each. Raises SQLAlchemyError, OSError."""
    while True:
        arrivals = arrivals_of(
            list(described.values()), settings, ledger.known_studies, ledger.campaigns_of
        )
        pairs = zip(described, with_priority_of_folder(described, arrivals), strict=True)
        marked = [
            replace(item, is_left_behind=True) if file in left_behind else item
            for file, item in pairs
        ]
        # Another process may have begun a study meanwhile. Its decision is read in the next turn,
        # so each turn settles a study.
        with contextlib.suppress(StudyDecided):
            outcomes = keep_only_copies(
                *same_object.record(marked, ledger, archive), ledger, archive
            )
            pairs_of = zip(marked, outcomes, strict=True)
            seen([item for item, outcome in pairs_of if outcome is RecordOutcome.NEW])
            return outcomes


def _index_singly(
    files: Sequence[File],
    error: Exception,
    archive: Archive,
    again: Callable[[Sequence[File]], Counter[RecordOutcome]],
) -> Counter[RecordOutcome]:
    """Index files singly: one bad file must not delay its batch."""
    if len(files) == 1:
        _log.error(
            "quarantined",
            file=_name(files[0]),
            problem=f"the ledger refuses it: {type(error).__name__}",
        )
        archive.quarantine(files[0])
        return Counter()
    return sum((again([file]) for file in files), Counter())


def _described(
    file: File, ledger: Ledger, archive: Archive, lost: Collection[int]
) -> Instance | None:
    try:
        return describe(Path(file), ledger.digest_seed)
    except CannotUnderstand as problem:
        _log.error("quarantined", file=_name(file), problem=problem.comment)
        archive.quarantine(file)
    except OSError as error:
        if error.errno not in lost:
            raise
        _log.error(
            "unreadable",
            file=_name(file),
            problem=error.strerror,
            advice="left in unindexed for the next start",
        )
    return None


def _write_span(instance: Instance, outcome: RecordOutcome) -> None:
    """Write the span from its acknowledgement to its row."""
    if (trace := tracing.of_study(instance.study_instance_uid)) is not None:
        said = {"sop_instance_uid": instance.sop_instance_uid, "outcome": outcome.value}
        place = tracing.new_place(trace)
        tracing.write(
            tracing.FinishedSpan(
                place, trace.root, "index", instance.received_at, time.time(), attributes=said
            )
        )


def _is_gone(file: File) -> bool:
    """Return whether the file is gone; False where it is unknown, as while a network is away.

    A file dropped by mistake would get no row before the next start.
    """
    try:
        os.lstat(file)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _name(file: File) -> str:
    return os.path.basename(file)  # noqa: PTH119 - see `File`


def _settle(file: File, outcome: RecordOutcome, archive: Archive, *, is_placed: bool) -> None:
    """Move the file according to its outcome.

    Readers still find a file that cannot be moved, and the scan at start tries again.
    """
    if outcome.is_conflict:
        _log.warning(outcome.value, file=_name(file), advice=_CONFLICT_ADVICE[outcome])
    try:
        if outcome is RecordOutcome.DUPLICATE:
            archive.discard(file)
        elif outcome.is_conflict:
            archive.quarantine(file)
        else:
            archive.settle(file, is_placed=is_placed)
    except OSError as error:
        _log.warning("not_settled", file=_name(file), problem=error.strerror)


class Indexer:
    """The thread of one listener that indexes acknowledged files."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        archive: Archive,
        *,
        maximum_backlog: int = _MAXIMUM_BACKLOG,
        patience_seconds: float = _PATIENCE_SECONDS,
        when_failed: Callable[[], None] = lambda: None,
        outcomes: Counter[RecordOutcome] | None = None,
        seen: Seen = unseen,
    ) -> None:
        """Keep the parameters.

        `when_failed`: called on its thread when a bug has ended it; no file is indexed from then
        on, so the process must end. `outcomes`: counts the outcomes of files, except those that
        were left behind. `seen`: takes the images that are new, on its thread.
        """
        self._maximum_backlog = maximum_backlog
        self._patience_seconds = patience_seconds
        self._settings = settings
        self._ledger = ledger
        self._archive = archive
        self._queue: queue.SimpleQueue[PendingFile | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._begun_at: float | None = None  # since when the current batch waits for its rows
        self.under_way: set[object] = set()  # objects that are being received now, and will be put
        self.failure: BaseException | None = None
        self._when_failed = when_failed
        self._seen = seen
        self._outcomes = Counter[RecordOutcome]() if outcomes is None else outcomes
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread("indexer", self._run)

    def put_left_behind(self, file: Path) -> None:
        """Index a file that an earlier process acknowledged."""
        self._queue.put(PendingFile(file, None, time.monotonic(), is_left_behind=True))

    def put(self, file: File, instance: Instance | None = None) -> None:
        """Index this file soon. Never blocks.

        A file whose instance is given need not be read again.
        """
        is_kept = self._queue.qsize() < _MAXIMUM_KNOWN
        self._queue.put(PendingFile(file, instance if is_kept else None, time.monotonic()))

    @property
    def is_overloaded(self) -> bool:
        """Whether more objects should be refused.

        That is so while the ledger has been away for long or cannot keep up, or after a failure of
        the indexing. An object store that is away is no cause.
        """
        if self.failure is not None:
            return True
        begun = self._begun_at
        now = time.monotonic()
        # While an object store is away, or slow, the disk is the queue, and its watermarks the end.
        since = begun if begun is None else max(begun, self._archive.busy_until)
        is_away = since is not None and now - since >= self._patience_seconds
        is_long = self._queue.qsize() >= self._maximum_backlog
        return is_away or (is_long and not self._archive.is_remote)

    def stop(self, seconds: float) -> None:
        """Index the rest, for so long at most.

        Files that remain wait in `unindexed` for the next start.
        """
        self._stopping.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._index(batch)
        except BaseException as error:
            self.failure = error  # the process's main thread ends it with this error
            self._when_failed()
            raise

    def _next_batch(self) -> list[PendingFile]:
        """Return at most 256 files, or those of 100 ms; none when it is time to stop."""
        if (first := self._queue.get()) is None:
            return []
        self._gather()
        return [first, *self._waiting()]

    def _gather(self) -> None:
        """Wait for more files, if any come."""
        # It sleeps and does not wait at the queue: each acknowledgement would wake this thread, and
        # then wait for it.
        end = time.monotonic() + _GATHER_SECONDS
        came = 0
        is_over = self._stopping.wait(_MOMENT_SECONDS)
        while (
            not is_over
            and (self.under_way or self._queue.qsize() > came)
            and came < BATCH
            and time.monotonic() < end
        ):
            came = self._queue.qsize()
            is_over = self._stopping.wait(_LOOK_SECONDS)

    def _waiting(self) -> Iterator[PendingFile]:
        """Return the files that have come meanwhile.

        The None of `stop` stays, so that it is the last.
        """
        with contextlib.suppress(queue.Empty):
            for _ in range(BATCH - 1):
                if (following := self._queue.get_nowait()) is None:
                    self._queue.put(None)
                    return
                yield following

    def _index(self, batch: list[PendingFile]) -> None:
        # An attempt that does not end, as while a lock is held, counts as failed.
        self._begun_at = time.monotonic()
        failures = 0
        while not self._try(batch) and not self._stopping.wait(
            _BACKOFF.after(failures := failures + 1)
        ):
            # the others were indexed singly, or quarantined
            batch = [item for item in batch if not _is_gone(item.file)]

    def _try(self, batch: list[PendingFile]) -> bool:
        try:
            with telemetry.cpu("index"):
                # they came before the others
                if left_behind := [item.file for item in batch if item.is_left_behind]:
                    index(
                        left_behind,
                        self._settings,
                        self._ledger,
                        self._archive,
                        left_behind=set(left_behind),
                        seen=self._seen,
                    )
                ours = {item.file: item.instance for item in batch if not item.is_left_behind}
                if ours:
                    known = {
                        file: instance for file, instance in ours.items() if instance is not None
                    }
                    self._outcomes.update(
                        index(
                            list(ours),
                            self._settings,
                            self._ledger,
                            self._archive,
                            known,
                            seen=self._seen,
                        )
                    )
        except (SQLAlchemyError, OSError) as error:
            _log.error(
                "not_indexed",
                files=len(batch),
                problem=_kind(error),
                advice="kept in unindexed; trying again",
            )
            return False
        self._begun_at = None
        for item in batch:
            telemetry.INDEX_SECONDS.observe(time.monotonic() - item.at)
        return True


def _kind(error: Exception) -> str:
    """Return the kind of error, without data that a database quotes."""
    return (
        f"{type(error).__name__}: {error.strerror}"
        if isinstance(error, OSError)
        else type(error).__name__
    )
