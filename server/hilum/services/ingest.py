"""`hilum ingest` and watched folders: files into the archive without a network.

This process indexes them.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from hilum.domain import Priority
from hilum.errors import ConfigurationError, Retry
from hilum.receive.files.folder import FileOutcome, FolderIntake, TakenFile
from hilum.receive.files.traversal import Traversal
from hilum.receive.indexing.missing_files import KeptObjects
from hilum.receive.indexing.priority_folder import folder_with_priority
from hilum.receive.policy.watermarks import Watermarks
from hilum.receive.storage.session import indexing, open_inbox
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import begin_archive
from hilum.store.ledger import Ledger, RecordOutcome
from hilum.store.queries.views import LedgerViews

_AHEAD = 4  # files in progress for each thread: enough to keep it busy, few enough to stop soon
_AT_ONCE = 16  # commands that take files into one archive
_PAUSE_SECONDS = 5.0
_SAID_AGAIN_SECONDS = 3600.0
# without a wait; two looks of one wait are a pause and a try of the ledger apart: 5 s (PostgreSQL),
# 30 s (SQLite)
_OVER_SECONDS = 60.0
_NUMBERS = re.compile(r"\d+")
_FLUSH_SECONDS = 600.0


class Stopped(Exception):
    """There was a reason to wait, and no time."""


class ThrottledNotice:
    """A notice of a wait, given when the wait begins and then hourly. Thread-safe.

    A disk that is full over a weekend is checked every five seconds.
    """

    def __init__(
        self, waiting: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._waiting = waiting
        self._clock = clock
        self._lock = threading.Lock()
        self._said_at: dict[str, float] = {}
        self._asked_at = float("-inf")

    def say(self, reason: str) -> None:
        """Give notice of a wait, unless it continues.

        Other numbers, such as the free space, make no new wait. After a while without a wait a new
        one begins.
        """
        now = self._clock()
        words = _NUMBERS.sub("", reason)
        with self._lock:
            if now - self._asked_at > _OVER_SECONDS:
                self._said_at.clear()
            self._asked_at = now
            is_new = now - self._said_at.get(words, float("-inf")) >= _SAID_AGAIN_SECONDS
            if is_new:
                self._said_at[words] = now
        if is_new:
            self._waiting(reason)


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """The origin of files: their sender, the AE Title of their route, and their priority.

    `priority` None: as the route says.
    """

    calling_ae_title: str
    called_ae_title: str
    priority: Priority | None


def ingest(
    settings: Settings,
    paths: Sequence[Path],
    origin: FileOrigin,
    jobs: int,
    note: Callable[[TakenFile], None],
    waiting: Callable[[str], None],
) -> Counter[FileOutcome]:
    """Take all files; each is durable and has its row, or is counted with its reason.

    Safe to repeat, and to interrupt. `note` is called for each file, `waiting` with the reason of a
    wait. Raises ConfigurationError, also for a path inside Hilum's own folders, and Retry if rows
    are still missing.
    """
    fates = Counter[FileOutcome]()
    outcomes = Counter[RecordOutcome]()
    stop = threading.Event()

    def heard(taken: TakenFile) -> None:
        fates[taken.fate] += 1
        note(taken)

    walk = Traversal(paths, settings.own_paths, heard)
    if problems := walk.problems():
        raise ConfigurationError(problems)
    with (
        taking(settings, origin, waiting, stop, outcomes) as (intake, archive),
        ThreadPoolExecutor(jobs, "ingest") as threads,
    ):
        try:
            for taken in _each(
                replace(intake, open_file=walk.open), walk.files(), threads, jobs * _AHEAD
            ):
                heard(taken)
        finally:
            stop.set()  # after Ctrl-C a thread must not wait for a full disk
    if left := sum(1 for _ in archive.unindexed(archive.process)):
        raise Retry(
            f"{left} files are durable in the archive and wait for their rows: look at the ledger,"
            " then start this again"
        )
    return _as_recorded(fates, outcomes)


def _as_recorded(
    fates: Counter[FileOutcome], outcomes: Counter[RecordOutcome]
) -> Counter[FileOutcome]:
    """Return the counts corrected by the outcomes of indexing.

    Another file of the same call may have made a file known, or put it in conflict, before it got
    its row.
    """
    conflicts = sum(count for outcome, count in outcomes.items() if outcome.is_conflict)
    late = Counter(
        {FileOutcome.KNOWN: outcomes[RecordOutcome.DUPLICATE], FileOutcome.CONFLICT: conflicts}
    )
    return fates + late - Counter({FileOutcome.STORED: late.total()})


@contextlib.contextmanager
def taking(
    settings: Settings,
    origin: FileOrigin,
    waiting: Callable[[str], None],
    stop: threading.Event,
    outcomes: Counter[RecordOutcome] | None = None,
) -> Iterator[tuple[FolderIntake, Archive]]:
    """Yield the intake of files, and the archive.

    At the end their rows are written, or the files are in `unindexed` for the next run. `stop` ends
    a wait for the disk or the ledger (Stopped); it is set if a bug ends the indexing, which is
    raised at the end. `outcomes` counts the outcomes of files when they got their rows.
    """
    said = ThrottledNotice(waiting)

    def pause(reason: str) -> None:
        said.say(reason)
        if stop.wait(_PAUSE_SECONDS):
            raise Stopped

    url = settings.ledger_url
    with (
        contextlib.closing(Ledger(url)) as ledger,
        contextlib.closing(LedgerViews(url)) as views,
        own_archive(settings, origin.priority) as archive,
        indexing(settings, ledger, archive, stop, _FLUSH_SECONDS, outcomes) as reception,
    ):
        watermarks = Watermarks(settings.receive, archive, views)
        known = KeptObjects(views, archive, ledger.digest_seed)
        yield (
            FolderIntake(
                reception,
                known,
                origin.calling_ae_title,
                origin.called_ae_title,
                pause,
                watermarks.rejection,
            ),
            archive,
        )


def _each(
    intake: FolderIntake, paths: Iterator[Path], threads: ThreadPoolExecutor, ahead: int
) -> Iterator[TakenFile]:
    """Return files in the order in which they are done; only a few are in progress at once."""
    running: set[Future[TakenFile]] = {
        threads.submit(intake.take, path) for path in itertools.islice(paths, ahead)
    }
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        running |= {
            threads.submit(intake.take, path) for path in itertools.islice(paths, len(done))
        }
        yield from (future.result() for future in done)


@contextlib.contextmanager
def own_archive(settings: Settings, priority: Priority | None) -> Iterator[Archive]:
    """Yield an archive under the first free name of this priority.

    There is one for each watched folder, in addition to those of commands.
    """
    begin_archive(settings.ledger_url, open_archive(settings))
    for number in range(_AT_ONCE + len(settings.watch)):
        folder = folder_with_priority(f"{socket.gethostname()}-ingest-{number}", priority)
        archive = open_inbox(settings, folder)
        with archive.held(archive.process) as is_ours:
            if is_ours:
                yield archive
                return
    problem = (
        f"archive: {_AT_ONCE} commands of this host take files into {settings.archive_dir} already;"
        " wait for one of them."
    )
    raise ConfigurationError([problem])
