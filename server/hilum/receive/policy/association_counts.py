"""Associations on which nothing was stored: one row for all of a kind from a sender in a minute.

So unknown peers do not fill the ledger, at any rate and under any titles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from hilum.domain import AssociationRecord

WINDOW_SECONDS: Final = 60.0
# beyond them rows are shared by AE Titles, then by addresses
_ROWS_OF_ADDRESS = 64
_ROWS = 256
_MAXIMUM_ROWS: Final = 4096  # that wait for a ledger which is away
_OTHERS: Final = "others"
_TLS_FAILED: Final = "tls_failed"
_REFUSED: Final = frozenset(("rejected", "dropped", "not_dicom", _TLS_FAILED))

Key = tuple[str, str, str, str, str | None]


@dataclass(slots=True, eq=False)
class CountedRow:
    """A row of the ledger, present or future. `began`: monotonic."""

    record: AssociationRecord
    began: float
    row_id: int | None = None
    is_written: bool = False
    is_said: bool = False


class AssociationCounts:
    """The counts, for one thread at a time."""

    def __init__(self) -> None:
        self._open: dict[Key, CountedRow] = {}
        self._closed: list[CountedRow] = []  # over, and not written yet

    def add(self, record: AssociationRecord, now: float) -> bool:
        """Count the record; False: there is no room for it."""
        if (row := self._row_of(record, now)) is not None:
            _merge(row, record)
            return True
        if len(self._open) + len(self._closed) >= _MAXIMUM_ROWS:
            return False
        shared = self._shared(record)
        if shared is not record:
            return self.add(shared, now)
        self._close(self._open.get(_key(record)))
        self._open[_key(record)] = CountedRow(record, now)
        return True

    def _row_of(self, record: AssociationRecord, now: float) -> CountedRow | None:
        """Return the row of this minute."""
        row = self._open.get(_key(record))
        return row if row is not None and now - row.began < WINDOW_SECONDS else None

    def _shared(self, record: AssociationRecord) -> AssociationRecord:
        """Return the record with fewer details where there are many rows already, else itself."""
        if record.peer_address != _OTHERS and len(self._open) >= _ROWS:
            return replace(record, peer_address=_OTHERS, calling_ae_title="", called_ae_title="")
        of_address = sum(
            1 for row in self._open.values() if row.record.peer_address == record.peer_address
        )
        if (record.calling_ae_title or record.called_ae_title) and of_address >= _ROWS_OF_ADDRESS:
            return replace(record, calling_ae_title="", called_ae_title="")
        return record

    def _close(self, row: CountedRow | None) -> None:
        """Close a row whose minute is over."""
        if row is not None:
            del self._open[_key(row.record)]
            self._closed.append(row)

    def unwritten(self) -> list[CountedRow]:
        """Return rows that the ledger does not have, or not with their newest count."""
        return [row for row in self._rows() if not row.is_written]

    def _rows(self) -> Iterator[CountedRow]:
        yield from self._closed
        yield from self._open.values()

    def written(self, row: CountedRow, record: AssociationRecord, row_id: int) -> None:
        """Mark the row as written with this record; more may have been counted since."""
        row.row_id = row_id
        row.is_written = row.record is record

    def end_minutes(self, now: float) -> dict[str, dict[str, int]]:
        """Close the minutes that are over; return how often each reason refused, by address."""
        for row in [row for row in self._open.values() if now - row.began >= WINDOW_SECONDS]:
            self._close(row)
        over = [row for row in self._closed if not row.is_said]
        for row in over:
            row.is_said = True
        self._closed = [row for row in self._closed if not row.is_written]
        return _refusals(over)

    @property
    def is_empty(self) -> bool:
        """Whether there is no row to write or to log, now or later."""
        return not (self._open or self._closed)


def _key(record: AssociationRecord) -> Key:
    # Few kinds: failed handshakes have no reason of one word, and few advices. Other advices may
    # quote the peer.
    kind = record.advice if record.outcome == _TLS_FAILED else record.reason
    return (
        record.peer_address,
        record.calling_ae_title,
        record.called_ae_title,
        record.outcome,
        kind,
    )


def _merge(row: CountedRow, record: AssociationRecord) -> None:
    known = row.record
    row.record = replace(
        known,
        ended_at=record.ended_at,
        count=known.count + record.count,
        refused=known.refused + record.refused,
        own_documents=known.own_documents + record.own_documents,
        advice=record.advice,
    )
    row.is_written = False


def _refusals(rows: list[CountedRow]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        record = row.record
        is_http = (record.reason or "").startswith("http_")
        if record.outcome in _REFUSED or is_http:
            reasons = found.setdefault(record.peer_address, {})
            reason = record.reason or record.outcome
            reasons[reason] = reasons.get(reason, 0) + record.count
    return found
