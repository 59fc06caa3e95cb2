"""Rows of associations in either database: written once, or grown while the same happens again."""

from __future__ import annotations

from hilum.domain import AssociationRecord
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews


def record(title: str, count: int = 1, ended_at: float = 2.0, stored: int = 0) -> AssociationRecord:
    return AssociationRecord(
        1.0,
        ended_at,
        "192.0.2.1",
        title,
        "HILUM",
        "rejected",
        "unknown",
        stored,
        count,
        "Change it.",
        0,
        count,
    )


def test_rows_begin_and_grow_and_keep_their_ids(ledger: Ledger, ledger_url: str) -> None:
    begun = ledger.record_associations(
        [record("CR1", stored=1)], [(None, record("A")), (None, record("B")), (None, record("C"))]
    )
    assert len(set(begun)) == 3
    again = ledger.record_associations(
        [], [(begun[1], record("B", 7, 9.0)), (None, record("D")), (begun[0], record("A", 3, 5.0))]
    )
    assert (again[0], again[2]) == (begun[1], begun[0])
    views = LedgerViews(ledger_url)
    found = {
        row["calling_ae_title"]: (row["id"], row["count"], row["refused"], row["ended_at"])
        for row in views.associations()[0]
    }
    views.close()
    assert found["A"] == (begun[0], 3, 3, 5.0)
    assert found["B"] == (begun[1], 7, 7, 9.0)
    assert found["C"] == (begun[2], 1, 1, 2.0)
    assert found["D"] == (again[1], 1, 1, 2.0)
    assert found["CR1"][1:] == (1, 1, 2.0)


def test_a_row_that_was_forgotten_meanwhile_does_not_come_back(
    ledger: Ledger, ledger_url: str
) -> None:
    assert ledger.record_associations([], [(77, record("GONE"))]) == [77]
    views = LedgerViews(ledger_url)
    assert views.associations()[0] == []
    views.close()
