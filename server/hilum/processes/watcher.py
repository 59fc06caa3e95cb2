"""The watcher's process: folders for incoming files, one thread each.

Of several hosts that share an archive one takes the files of a folder, and the others stand by. The
lock is in the archive, so it holds as far as the archive is shared. The death of its owner releases
it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import Priority
from hilum.observability import telemetry
from hilum.processes.heartbeat import Heartbeat
from hilum.receive.files.folder import FileOutcome, FolderIntake, TakenFile
from hilum.receive.files.skipped_files import SkippedFiles
from hilum.receive.files.watched_folder import NOT_TAKEN, WatchedFolder
from hilum.receive.indexing.priority_folder import takers
from hilum.receive.indexing.recovery import recover
from hilum.receive.threads import log_failures, start_thread
from hilum.services.ingest import FileOrigin, Stopped, taking
from hilum.services.launch_spec import LaunchSpec
from hilum.settings import Settings, Watch
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import begin_archive
from hilum.store.ledger import Ledger

_LOOK_SECONDS: Final = 1.0
_LONGEST_REST_SECONDS: Final = 10.0
_REST: Final = 200.0  # times the cost of a look: idle folders take less than a hundredth of a core
_STAND_BY_SECONDS: Final = 2.0
LISTS_FOLDER: Final = "not_taken"  # in the state folder
log = telemetry.logger("processes")


def run(_spec: LaunchSpec, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Watch all folders until `stop` is set."""
    log_failures()
    begin_archive(settings.ledger_url, open_archive(settings))
    with Heartbeat(ledger, "watcher"):
        threads = [
            start_thread(f"watch-{name}", _watch, name, watch, settings, ledger, stop)
            for name, watch in settings.watch.items()
        ]
        while not stop.wait(_LOOK_SECONDS):
            if not all(thread.is_alive() for thread in threads):
                raise RuntimeError("the thread of a watched folder has ended")
        for thread in threads:
            thread.join()


def _watch(
    name: str, watch: Watch, settings: Settings, ledger: Ledger, stop: threading.Event
) -> None:
    archive = open_archive(settings)
    lock = f"watch-{quote(name, safe='')}"
    is_said = False
    while not stop.is_set():
        with archive.held(lock) as is_ours:
            if is_ours:
                _recover(settings, ledger, archive)
                _take(name, watch, settings, stop)
                return
        if not is_said:
            log.info(
                "watch_standby",
                watch=name,
                advice="another process takes its files; this one does when that has ended",
            )
            is_said = True
        stop.wait(_STAND_BY_SECONDS)


def _recover(settings: Settings, ledger: Ledger, archive: Archive) -> None:
    """Index the files that the former watcher had taken.

    They are in a folder of its own host, whose server may not start again for long.
    """
    try:
        recover(settings, ledger, archive, takers(archive.processes()))
    except (SQLAlchemyError, OSError) as error:
        log.warning(
            "leftovers_not_indexed",
            problem=type(error).__name__,
            advice="the next start of a server indexes them",
        )


def _take(name: str, watch: Watch, settings: Settings, stop: threading.Event) -> None:
    folder = WatchedFolder(watch.path, watch.when_taken, watch.settle_seconds)
    origin = FileOrigin(
        watch.calling_ae_title,
        watch.called_ae_title or settings.receive.ae_titles[0],
        Priority[watch.priority.upper()],
    )
    left = SkippedFiles(
        settings.site.state_dir / LISTS_FOLDER / f"{quote(name, safe='')}.txt", watch.path
    )
    with contextlib.suppress(OSError):
        left.begin()
    problem = ""
    passed_over = frozenset[str]()
    with taking(settings, origin, partial(_say, name), stop) as (found, _):
        intake = replace(found, open_file=folder.open)
        while not stop.is_set():
            rest = _LOOK_SECONDS
            try:
                rest = _look(name, folder, intake, left, stop)
                problem = ""
                for new in sorted(folder.problems - passed_over):
                    log.warning(
                        "entries_skipped",
                        watch=name,
                        problem=new,
                        advice="the others are taken; look at links and rights",
                    )
                passed_over = folder.problems
            except Stopped:
                return
            except OSError as error:
                if problem != (problem := str(error.strerror)):
                    log.error(
                        "folder_not_readable",
                        watch=name,
                        problem=problem,
                        advice="nothing is taken from it until it is",
                    )
            stop.wait(rest)


def _look(
    name: str,
    folder: WatchedFolder,
    intake: FolderIntake,
    left: SkippedFiles,
    stop: threading.Event,
) -> float:
    """Take whole files; return the seconds until the next look."""
    began = time.thread_time()
    found = folder.whole(time.time())
    rest = min(max(_LOOK_SECONDS, _REST * (time.thread_time() - began)), _LONGEST_REST_SECONDS)
    for path in found:
        if stop.is_set():
            break
        _take_one(name, folder, intake, left, path)
    with contextlib.suppress(OSError):  # the next look tries again
        left.settle()
    return _LOOK_SECONDS if found else rest


def _take_one(
    name: str, folder: WatchedFolder, intake: FolderIntake, left: SkippedFiles, path: Path
) -> None:
    taken = intake.take(path)
    problem = _settle(folder, taken)
    named: dict[str, str] = {}
    if problem or (taken.fate in NOT_TAKEN and folder.when_taken == "keep"):
        named = {"named_in": _listed(left, taken, problem)}
    else:
        left.forget(path)
    if problem:
        log.error(
            "file_not_moved",
            watch=name,
            problem=problem,
            advice="it stays where it is until it changes; look at it",
            **named,
        )
    if taken.fate is FileOutcome.CONFLICT:
        log.warning("conflict", watch=name, advice=taken.detail)
    if taken.fate in NOT_TAKEN:
        log.warning(
            "file_not_taken", watch=name, fate=taken.fate.value, detail=taken.detail, **named
        )


def _settle(folder: WatchedFolder, taken: TakenFile) -> str:
    """Move a taken file; return the problem, which must not delay the following files."""
    try:
        folder.settle(taken)
    except FileNotFoundError:  # another process has removed it
        return ""
    except OSError as error:
        folder.leave(taken.path)
        return error.strerror or type(error).__name__
    return ""


def _listed(left: SkippedFiles, taken: TakenFile, problem: str) -> str:
    """Return the list that names a file that stays in place.

    Its name is not logged: people name files after patients.
    """
    try:
        left.note(taken, problem, time.time())
    except OSError as error:
        return f"no list: {error.strerror}"
    return str(left.file)


def _say(name: str, reason: str) -> None:
    log.warning("watch_waits", watch=name, reason=reason)
