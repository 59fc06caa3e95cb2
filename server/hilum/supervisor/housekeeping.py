"""The thread that keeps archive and ledger within their bounds.

Pixels are deleted by age or under pressure, files without a row are deleted, and rows that are only
history are deleted. Images acknowledged by hosts that are gone get their rows. The thread runs
where listeners run, because the archive is there; of several such hosts one does the work.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import Priority
from hilum.errors import ConfigurationError, Retry
from hilum.observability import telemetry
from hilum.receive.indexing.recovery import abandoned, recover
from hilum.services.forgotten_studies import Forgetting, rows_before
from hilum.services.launch_spec import process_name
from hilum.settings import Retention as RetentionSettings
from hilum.settings import Settings
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import begin_archive
from hilum.store.database.engines import open_engine
from hilum.store.installation.known_time import Believed, KnownTime, counter
from hilum.store.ledger import Ledger
from hilum.store.retention.deletions import Removed
from hilum.store.retention.policy import RetentionPolicy, RetentionScan, Rule, Share
from hilum.store.retention.rate import Hour
from hilum.store.retention.rows import RowRetention, StudyWalk
from hilum.supervisor.checks.retention_advice import CLOCK_AHEAD, CLOCK_BEHIND, HOUR_SPENT

_DAY_SECONDS = 86400.0
_OWNED_SECONDS = 120.0
_ABANDONED_SECONDS = 60.0  # a process that is started again takes its own files by itself
_PAUSE_SECONDS = 0.05  # between batches: the listener writes into the same ledger
_EVERY_PRIORITY = frozenset(Priority)
# of our own requests for storage commitment: twice the longest wait for a report
_ANSWER_DAYS = 60
_PEAK = 4  # times the hourly average of deletions: images come by day
_IMAGES_AN_HOUR = 1000
_NOTHING_MORE = (
    "nothing more may leave: deliver what waits, or add space; look whether snapshots, or a backup"
    " on this file system, hold what was deleted, and whether storage commitment has promised the"
    " rest (retention.committed_days)"
)
_STUDIES_A_TURN = 5000
_NOT_EXPORTED = (
    "rows stay until they are exported: make room in the folder of retention.row_exports, and let"
    " this user write there; tried again at the next turn"
)
_log = telemetry.logger("supervisor")


def rules(settings: RetentionSettings, now: float) -> Iterator[Rule]:
    """Return the rules of deletion by age."""
    promised_before = promises_end(settings, now)
    if settings.days:
        yield Rule(
            _EVERY_PRIORITY - {Priority.REANALYSIS},
            now - settings.days * _DAY_SECONDS,
            "age",
            promised_before,
        )
    if settings.reanalysis_days:
        yield Rule(
            {Priority.REANALYSIS},
            now - settings.reanalysis_days * _DAY_SECONDS,
            "age",
            promised_before,
        )


def promises_end(settings: RetentionSettings, now: float) -> float | None:
    """Return the moment before which a commitment must have been made to allow deletion now.

    None: commitments have no end.
    """
    return now - settings.committed_days * _DAY_SECONDS if settings.committed_days else None


def hourly_share(settings: RetentionSettings) -> Share:
    """Return the share of images that may be deleted by age within an hour.

    Deletions come in peaks, as images do: most of a day's within a few hours.
    """
    periods = [days * 24 for days in (settings.days, settings.reanalysis_days) if days]
    usual = _PEAK / min(periods) if periods else 0.0
    return Share(min(1.0, max(settings.hourly_share, usual)), _IMAGES_AN_HOUR)


def outdated(settings: RetentionSettings, now: float) -> Iterator[tuple[str, float]]:
    """Return the kinds of history rows that may be deleted, and before which moment."""
    kept = {
        "associations": settings.association_days,
        "commitments": settings.commitment_days,
        "workitems": settings.workitem_days,
        "audit": settings.audit_days,
    }
    for name, days in kept.items():
        if days:
            yield name, now - days * _DAY_SECONDS
    if settings.commitment_days:
        longest = max(settings.commitment_days, _ANSWER_DAYS)
        yield "asked_commitments", now - longest * _DAY_SECONDS
    # of hosts that are gone; their leases have expired long before
    yield "processes", now - _DAY_SECONDS


class Housekeeper:
    """The owner of the thread. Start it once; `look` restarts the thread after a bug.

    So a full disk does not follow from a bug.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = counter,
    ) -> None:
        """Keep the settings and open the ledger.

        `elapsed`: seconds of a clock that cannot be set.
        """
        self._installation = settings
        self._settings = settings.retention
        self._clock = clock
        self._archive = open_archive(settings)
        self._engine = open_engine(settings.ledger_url, is_synced=False)
        self._time = KnownTime(self._engine, clock, elapsed)
        self._retention = RetentionPolicy(
            settings.ledger_url, self._archive, self._time.now, hourly_share(self._settings)
        )
        self._rows = RowRetention(settings.ledger_url)
        self._row_walk = StudyWalk()
        self._elapsed = elapsed
        self._rows_rest_until = elapsed()
        self._forgetting = Forgetting(settings, self._rows, clock)
        self._said: frozenset[str] = frozenset()  # why fewer images leave than the settings allow
        self._owner = process_name("supervisor", os.getpid())
        # By priority. The next turn continues where a turn has ended.
        self._walks: dict[frozenset[Priority], RetentionScan] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Make sure that the thread runs."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the batch in progress, then stop."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        self._retention.close()
        self._rows.close()
        self._engine.dispose()

    def _run(self) -> None:
        # It waits first: at start everything else is more urgent, and a bug must not make it spin.
        while not self._stop.wait(self._settings.check_seconds):
            try:
                self.turn()
            except (SQLAlchemyError, OSError) as error:
                _log.warning(
                    "housekeeping_failed",
                    problem=type(error).__name__,
                    advice="tried again at the next turn",
                )

    def turn(self) -> None:
        """Delete all that may be deleted now, batch after batch."""
        if not self._is_there():
            _log.warning(
                "archive_missing",
                folder=self._archive.address,
                advice="mount it; nothing is removed meanwhile",
            )
            return
        if self._retention.hold(self._owner, max(_OWNED_SECONDS, 2 * self._settings.check_seconds)):
            self._look_after_all()
        elif self._archive.is_remote:  # no other host sees this one's spool
            self._look_after_spool()

    def _is_there(self) -> bool:
        """Return whether the archive is there.

        A new object store that was away when this server started gets its marker now.
        """
        if (is_there := self._archive.is_there) or not self._archive.is_remote:
            return is_there
        with contextlib.suppress(ConfigurationError):  # the ledger names objects of another one
            begin_archive(self._installation.ledger_url, self._archive)
        return self._archive.is_there

    def _look_after_all(self) -> None:
        problems = dict(_problems_of_clock(self._time.look()))
        self._delete_by_age()
        if self._retention.hour.is_spent:
            problems["hourly_share_spent"] = _spent(self._retention.hour)
        if said := self._relieve():
            problems["disk_pressure"] = said
        self._say(problems)
        self._remove_files()
        self._forget()
        self._shorten_headers()
        self._forget_studies()
        self._look_after_spool()

    def _look_after_spool(self) -> None:
        if gone := self._archive.forget_gone(min(self._clock(), self._time.now()) - _DAY_SECONDS):
            _log.info("processes_forgotten", names=gone)
        self._take_abandoned()

    def _delete_by_age(self) -> None:
        for rule in rules(self._settings, self._time.now()):
            walk = self._walks.setdefault(frozenset(rule.priorities), RetentionScan())
            while self._retention.release(rule, walk=walk) and self._may_go_on():
                self._remove_files()

    def _relieve(self) -> dict[str, Any]:
        """Delete delivered images early under disk pressure, as many bytes as are missing.

        Return the cause if bytes are still missing; the rest waits for the next turn. Age does not
        count here, so no clock does. Nor does the share of an hour, because reception would end.
        The bounds are the missing bytes, and that deleting must help (hourly.py). Storage
        commitments are honoured here, too.
        """
        if self._archive.is_remote:
            return {}  # what is deleted from a store frees no disk of this host
        missing = self._settings.pressure_free_bytes - self._archive.free().bytes
        promised_before = promises_end(self._settings, self._time.now())
        while missing > 0 and self._may_go_on():
            rule = Rule(_EVERY_PRIORITY, math.inf, "pressure", promised_before)
            freed = self._retention.release(rule, bytes_wanted=missing)
            if not freed:
                return {
                    "missing_bytes": missing,
                    "freed_bytes": self._retention.hour.pressed_bytes,
                    "advice": _NOTHING_MORE,
                }
            missing -= freed
            self._remove_files()
        return {}

    def _say(self, problems: Mapping[str, Mapping[str, Any]]) -> None:
        """Log each problem when it begins, and when it is over."""
        for name in sorted(problems.keys() - self._said):
            _log.warning(name, **problems[name])
        for name in sorted(self._said - problems.keys()):
            _log.info(f"{name}_over")
        self._said = frozenset(problems)

    def _remove_files(self) -> None:
        while removed := self._retention.remove_files():
            _account(removed)
            if not self._may_go_on():
                return

    def _forget(self) -> None:
        for name, before in outdated(self._settings, self._time.now()):
            while (count := self._retention.forget(name, before)) and self._may_go_on():
                _log.info("rows_forgotten", what=name, count=count)

    def _forget_studies(self) -> None:
        """Let rows of old studies leave: so many are looked at in a turn, and the next goes on.

        After the last it rests for a day: else each export would hold a few studies.
        """
        before = rows_before(self._settings.row_months, self._time.now())
        if self._elapsed() < self._rows_rest_until:
            return
        looked_at = 0
        while before is not None and looked_at < _STUDIES_A_TURN:
            try:
                turn = self._forgetting.next_batch(before, self._row_walk)
            except (OSError, Retry) as error:
                _log.error("rows_not_exported", problem=str(error), advice=_NOT_EXPORTED)
                return
            telemetry.STUDIES_FORGOTTEN.inc(turn.studies)
            if turn.studies:
                _log.info("studies_forgotten", count=turn.studies, file=turn.file)
            looked_at += turn.looked_at
            if not turn.looked_at:
                self._rows_rest_until = self._elapsed() + _DAY_SECONDS
            if not turn.looked_at or not self._may_go_on():
                return

    def _shorten_headers(self) -> None:
        while self._retention.shorten_headers() and self._may_go_on():
            pass

    def _take_abandoned(self) -> None:
        """Take over abandoned files, as the last step because it may take long.

        No other process would do it before a server with listeners is started.
        """
        if processes := abandoned(self._archive, self._clock() - _ABANDONED_SECONDS):
            with contextlib.closing(Ledger(self._installation.ledger_url, self._clock)) as ledger:
                recover(self._installation, ledger, self._archive, processes)

    def _may_go_on(self) -> bool:
        return not self._stop.wait(_PAUSE_SECONDS)


def _problems_of_clock(believed: Believed) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the name of each log event about the clock, and its fields."""
    if believed.is_ahead:
        yield (
            "clock_not_believed",
            {"ahead_days": round(believed.ahead_seconds / _DAY_SECONDS, 2), "advice": CLOCK_AHEAD},
        )
    if believed.is_behind:
        yield (
            "clock_behind",
            {
                "behind_days": round(-believed.ahead_seconds / _DAY_SECONDS, 2),
                "advice": CLOCK_BEHIND,
            },
        )


def _spent(hour: Hour) -> dict[str, Any]:
    return {"images": hour.images, "may_leave": hour.may_leave, "advice": HOUR_SPENT}


def _account(removed: list[Removed]) -> None:
    for item in removed:
        if item.problem is not None:
            _log.error(
                "file_not_removed",
                file=item.path,
                problem=item.problem,
                advice="check permissions; tried again in an hour",
            )
            continue
        telemetry.FILES_REMOVED.labels(item.cause).inc()
        telemetry.REMOVED_BYTES.labels(item.cause).inc(item.size_bytes)
    _log.info("files_removed", **Counter(item.cause for item in removed if item.problem is None))
