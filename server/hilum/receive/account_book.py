"""The rows of associations that have ended, written together by one thread.

A commit is synced, and a router may send each image on an association of its own.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

from sqlalchemy.exc import SQLAlchemyError

from hilum import telemetry
from hilum.domain import AssociationRecord
from hilum.receive.threads import start_thread
from hilum.store.ledger import Ledger

_log = telemetry.logger("receive")

# Nobody waits for these rows, and each commit is synced.
_GATHER_SECONDS = 0.1


class AccountBook:
    """Takes rows from any number of threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue: queue.SimpleQueue[AssociationRecord | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = start_thread("accounts", self._run)

    def put(self, record: AssociationRecord) -> None:
        """Write this row soon. Never blocks."""
        self._queue.put(record)

    def stop(self, seconds: float) -> None:
        """Write what is left, for so long at most."""
        self._stopping.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            self._stopping.wait(_GATHER_SECONDS)
            self._write([first, *self._waiting()])

    def _waiting(self) -> Iterator[AssociationRecord]:
        """All that wait, so that the None of `stop` is the last one."""
        with contextlib.suppress(queue.Empty):
            while (record := self._queue.get_nowait()) is not None:
                yield record
            self._queue.put(None)

    def _write(self, records: list[AssociationRecord]) -> None:
        try:
            self._ledger.record_associations(records)
        except SQLAlchemyError as error:
            _log.error("associations_not_recorded", count=len(records), problem=type(error).__name__)
