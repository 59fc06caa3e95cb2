"""Threads that pass on each new row of the audit: to the log, and to the syslog collector.

The rows are the queue: rows that a collector has missed wait in the ledger. For each of the two,
one host of all reads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from hilum.audit.message import AuditSource
from hilum.audit.syslog import Collector, NotDelivered
from hilum.backoff import RESTART
from hilum.observability import telemetry
from hilum.services.launch_spec import process_name
from hilum.settings import Settings
from hilum.store.admin.audit_cursors import AuditCursors

Row = Mapping[str, Any]
Take = Callable[[Sequence[Row]], None]
_LOOK_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0
_OWNED_SECONDS: Final = 60.0  # more than one batch takes, with all its time limits
_SAID: Final = (
    "actor",
    "channel",
    "address",
    "verb",
    "study_instance_uid",
    "thing",
    "name",
    "count",
    "outcome",
    "detail",
    "deed",
)
_log = telemetry.logger("supervisor")


def say(rows: Sequence[Row]) -> None:
    """Write a line of the log for each row."""
    for row in rows:
        _log.info("audit", **{name: row[name] for name in _SAID if row[name] not in (None, "")})


class AuditReader:
    """A reader that takes rows in order.

    `turn` passes on all new rows, or fails and waits longer each time.
    """

    def __init__(
        self,
        cursors: AuditCursors,
        name: str,
        take: Take,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cursors = cursors
        self.name = name
        self._take = take
        self._clock = clock
        self._owner = process_name("supervisor", os.getpid())
        self._failures = 0
        self._not_before = 0.0

    def turn(self) -> int:
        """Pass on new rows and return their number."""
        if self._clock() < self._not_before:
            return 0
        count = 0
        try:
            while self._cursors.has_news(self.name) and (rows := self._rows()):
                self._take(rows)
                self._cursors.move(self.name, self._owner, rows[-1]["id"])
                count += len(rows)
            self._failures = 0
        except (NotDelivered, SQLAlchemyError) as error:
            self._fail(error)
        return count

    def _rows(self) -> Sequence[Row]:
        """Return new rows, or no rows where another process reads."""
        last = self._cursors.take(self.name, self._owner, _OWNED_SECONDS)
        return () if last is None else self._cursors.after(last)

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._not_before = self._clock() + RESTART.after(self._failures)
        if self._failures == 1:
            problem = str(error) if isinstance(error, NotDelivered) else type(error).__name__
            _log.warning(
                "audit_not_forwarded",
                to=self.name,
                problem=problem,
                advice="the rows wait in the ledger; it is tried again",
            )

    def close(self) -> None:
        """Run `turn` once more; then another process may read.

        No row is passed on while a failed attempt still waits for its next try.
        """
        self.turn()
        self._cursors.give_back(self.name, self._owner)


class AuditReaders:
    """The readers of the audit. Start it once; `look` restarts a thread that has died.

    Raises ConfigurationError where the collector's files are not usable.
    """

    def __init__(self, settings: Settings) -> None:
        self._cursors = AuditCursors(settings.ledger_url)
        takes: dict[str, Take] = {"log": say}
        if settings.audit.syslog.host:
            takes["syslog"] = Collector(settings.audit.syslog, AuditSource(settings.site.name)).send
        self._cursors.set_up(list(takes))
        self._readers = [AuditReader(self._cursors, name, take) for name, take in takes.items()]
        self._stop = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def look(self) -> None:
        """Start missing threads, one for each reader: an unavailable collector delays no log."""
        for reader in self._readers:
            thread = self._threads.get(reader.name)
            if thread is None or not thread.is_alive():
                self._threads[reader.name] = threading.Thread(
                    target=self._run, args=[reader], name=f"audit-{reader.name}", daemon=True
                )
                self._threads[reader.name].start()

    def _run(self, reader: AuditReader) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            reader.turn()

    def stop(self) -> None:
        """Stop the threads and pass on the rows that are left."""
        self._stop.set()
        for reader in self._readers:
            if (thread := self._threads.get(reader.name)) is not None:
                thread.join(timeout=_STOP_SECONDS)
                if thread.is_alive():
                    continue  # a collector that hangs; its lease expires by itself
            try:
                reader.close()
            except SQLAlchemyError as error:
                _log.warning(
                    "audit_not_forwarded",
                    to=reader.name,
                    problem=type(error).__name__,
                    advice="at the next start",
                )
        self._cursors.close()
