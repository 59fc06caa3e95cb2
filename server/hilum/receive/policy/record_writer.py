"""The rows of associations that have ended, written together by one thread.

A commit is synced, and a router may send each image on an association of its own. Rows that cannot
be written wait, up to a limit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from typing import Final

from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from hilum.domain import AssociationRecord
from hilum.observability import telemetry
from hilum.receive.policy.association_counts import WINDOW_SECONDS, AssociationCounts, CountedRow
from hilum.receive.threads import start_thread
from hilum.store.ledger import Ledger

_log = telemetry.logger("receive")

# No caller waits for these rows, and each commit is synced.
_GATHER_SECONDS: Final = 0.1
# the interval of writing counts, and of trying again a ledger that is away
_LOOK_SECONDS: Final = 1.0
_MAXIMUM_WAITING: Final = 10_000
_AT_ONCE: Final = 1000


class AssociationRecordWriter:
    """The writer of rows, which takes them from any number of threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._waiting: deque[AssociationRecord] = deque()
        self._counts = AssociationCounts()
        self._lost = 0
        self._said_lost_at = self._grown_at = float("-inf")
        self._is_away = False
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread("accounts", self._run)

    def put(self, record: AssociationRecord) -> None:
        """Write this row soon, or count it in an existing one. Never blocks."""
        with self._lock:
            if record.stored:
                is_taken = len(self._waiting) < _MAXIMUM_WAITING
                if is_taken:
                    self._waiting.append(record)
            else:
                is_taken = self._counts.add(record, time.monotonic())
            self._lost += not is_taken
        self._changed.set()

    def stop(self, seconds: float) -> None:
        """Write the rest, for so long at most."""
        self._stopping.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(seconds)
        with self._lock:
            left = len(self._waiting) + sum(row.record.count for row in self._counts.unwritten())
        self._lose(left)
        self._say_lost()

    def _lose(self, count: int) -> None:
        with self._lock:
            self._lost += count

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait(
                _LOOK_SECONDS if self._waiting or not self._counts.is_empty else None
            )
            self._changed.clear()
            self._stopping.wait(_GATHER_SECONDS)
            self._turn()
            self._stopping.wait(_LOOK_SECONDS - _GATHER_SECONDS if self._is_away else 0.0)
        self._end()

    def _turn(self) -> None:
        self._write()
        with self._lock:
            refused = self._counts.end_minutes(time.monotonic())
        _say(refused)
        self._say_lost()

    def _end(self) -> None:
        self._write()
        with self._lock:
            refused = self._counts.end_minutes(float("inf"))
        _say(refused)

    def _write(self) -> None:
        """Write the rows that wait now.

        Later rows wait for the next turn, so that a flood causes no unbroken series of commits.
        """
        is_more = True
        while is_more:
            with self._lock:
                records = list(islice(self._waiting, _AT_ONCE))
                counted = self._due()
            is_more = len(records) == _AT_ONCE
            if (records or counted) and not self._is_done(records, counted):
                return

    def _due(self) -> list[tuple[CountedRow, AssociationRecord]]:
        """Return rows that begin; and rows that have grown, once a second and at the end."""
        now = time.monotonic()
        is_time_to_grow = now - self._grown_at >= _LOOK_SECONDS or self._stopping.is_set()
        if is_time_to_grow:
            self._grown_at = now
        return [
            (row, row.record)
            for row in self._counts.unwritten()
            if is_time_to_grow or row.row_id is None
        ]

    def _is_done(
        self, records: list[AssociationRecord], counted: list[tuple[CountedRow, AssociationRecord]]
    ) -> bool:
        """Return whether the ledger has the rows, or will never have them."""
        try:
            row_ids = self._ledger.record_associations(
                records, [(row.row_id, record) for row, record in counted]
            )
        except (DataError, IntegrityError) as error:
            self._forget(records, counted, [0] * len(counted))
            self._lose(len(records) + len(counted))
            _log.error(
                "associations_not_recorded",
                count=len(records) + len(counted),
                problem=type(error).__name__,
            )
            return True
        except SQLAlchemyError as error:
            if not self._is_away:
                _log.error(
                    "associations_not_recorded",
                    count=len(records) + len(counted),
                    problem=type(error).__name__,
                )
            self._is_away = True
            return False
        self._is_away = False
        self._forget(records, counted, row_ids)
        return True

    def _forget(
        self,
        records: list[AssociationRecord],
        counted: list[tuple[CountedRow, AssociationRecord]],
        row_ids: list[int],
    ) -> None:
        with self._lock:
            for _ in records:
                self._waiting.popleft()
            for (row, record), row_id in zip(counted, row_ids, strict=True):
                self._counts.written(row, record, row_id)

    def _say_lost(self) -> None:
        """Log lost rows, once a minute at most, and at the end."""
        now = time.monotonic()
        if not self._lost or (
            now - self._said_lost_at < WINDOW_SECONDS and not self._stopping.is_set()
        ):
            return
        with self._lock:
            lost = self._lost
            self._lost = 0
        self._said_lost_at = now
        telemetry.ASSOCIATION_ROWS_LOST.inc(lost)
        _log.error(
            "associations_lost",
            count=lost,
            advice="the ledger did not take their rows; see to its disk or its server",
        )


def _say(refused: dict[str, dict[str, int]]) -> None:
    for address, reasons in refused.items():
        _log.warning(
            "associations_refused",
            address=address,
            count=sum(reasons.values()),
            reasons=reasons,
            advice="GET /api/v1/associations has the advice for each",
        )
