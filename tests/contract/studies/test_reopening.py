"""A study is opened again in the moment in which a reading of it ends.

It waits for those that are open, and for no other.

SQLite has one writer at a time; on PostgreSQL both write at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event, select, text

from hilum.domain import Advance, ReadingState, Rejection, RemovalReason
from hilum.store.ledger import Ledger
from hilum.store.schema.tables import study
from tests.support.ledger.database import engine_of, transaction
from tests.support.ledger.ledger_steps import arrival
from tests.support.ledger.ledgers import migrated_postgres
from tests.support.machine.waiting import wait_for

_ENDED = Advance(ReadingState.ANALYSED, {"logits": [0.0]})
_FAILED = Advance(ReadingState.FAILED, {"reason": "worker_crashed"})


@pytest.fixture
def ledgers(postgres_url: str) -> Iterator[tuple[Ledger, Ledger]]:
    """An analyser's, and that of somebody else."""
    url = migrated_postgres(postgres_url)
    opened = Ledger(url), Ledger(url)
    yield opened
    for ledger in opened:
        ledger.close()


def reject(ledger: Ledger) -> None:
    ledger.reject([Rejection("1.2.3.2", "1.2.3", RemovalReason.QUALITY, None, "MODALITY")])


def requeue(ledger: Ledger) -> None:
    ledger.requeue("analyse")


@pytest.mark.parametrize(("open_again", "open_readings"), [(reject, 0), (requeue, 1)])
def test_a_reading_ends_while_its_study_is_opened_again(
    ledgers: tuple[Ledger, Ledger], open_again: Callable[[Ledger], None], open_readings: int
) -> None:
    analyser, other = ledgers
    analyser.record([arrival(1), arrival(2)])
    first, second = analyser.claim("analyse", 2, "worker", 60)
    analyser.advance("analyse", [(second.lease, _FAILED)])
    is_written, may_commit = threading.Event(), threading.Event()

    def hold(_connection: object) -> None:
        is_written.set()
        may_commit.wait(300)

    event.listen(engine_of(analyser), "commit", hold)
    with ThreadPoolExecutor(2) as threads:
        ending = threads.submit(analyser.advance, "analyse", [(first.lease, _ENDED)])
        assert is_written.wait(120)
        opening = threads.submit(open_again, other)
        wait_for(lambda: _waiting(other), what="the other one at the study's row")
        may_commit.set()
        assert ending.result() == [True]
        opening.result()
    with transaction(other) as connection:
        assert connection.execute(select(study.c.open_readings)).scalar_one() == open_readings


def _waiting(ledger: Ledger) -> int:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
        " wait_event_type = 'Lock'"
    )
    with transaction(ledger) as connection:
        return int(connection.execute(text(query)).scalar_one())
