"""What a batch writes is what its arrivals would have written one after the other, on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import Priority, Rejection, RemovalReason, RolloutMode
from hilum.store.intake.received import Arrival
from hilum.store.intake.record import RecordOutcome
from hilum.store.ledger import Ledger
from hilum.store.rollouts.rollouts import RolloutRequest, Rollouts
from hilum.store.schema import tables as schema
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import statements, transaction
from tests.support.ledger.ledgers import migrated_postgres, migrated_sqlite
from tests.support.ledger.rolling import kept
from tests.support.ledger.street import Clock

_RELEASES = ("a@1", "b@1")
# Rows get their numbers in another order, and nothing else differs.
_NUMBERS = ("id", "instance_id", "change")


@pytest.fixture(params=["sqlite", "postgresql"])
def ledgers(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[tuple[Ledger, Ledger]]:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    is_sqlite = request.param == "sqlite"
    opened = [
        Ledger(
            (
                migrated_sqlite(folder)
                if is_sqlite
                else migrated_postgres(request.getfixturevalue("postgres_url"))
            ),
            clock,
        )
        for folder in folders
    ]
    yield opened[0], opened[1]
    for ledger in opened:
        ledger.close()


def arrival(
    image: int, study: int, *, header: int = 0, pixels: int = 0, received_at: float = 0.0
) -> Arrival:
    """The same image with another header is a revision, with other pixels a conflict."""
    digests = {"digest": f"d{image}.{header}.{pixels}", "pixel_digest": f"p{image}.{pixels}"}
    priority = Priority(study % 3)
    return arrival_of(
        f"1.2.{image}",
        f"1.3.{study}",
        _RELEASES,
        priority=priority,
        maximum_wait_seconds=25,
        received_at=received_at,
        **digests,
    )


def drawn(source: random.Random, count: int) -> list[Arrival]:
    """Few images, so that most come again.

    The same, corrected, with other pixels, or in another study.
    """
    found = []
    for _ in range(count):
        image = source.randrange(count)
        study = image % 4 if source.random() < 0.9 else source.randrange(4)
        header, pixels = (int(source.random() < 0.2) for _ in range(2))
        found.append(
            arrival(image, study, header=header, pixels=pixels, received_at=source.uniform(0, 100))
        )
    return found


def written(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    """All rows of what recording touches, without their numbers."""
    tables = (
        schema.instance,
        schema.reading,
        schema.study,
        schema.conflict,
        schema.expired_file,
        schema.comparison,
    )
    with transaction(ledger) as connection:
        found = {
            table.name: [dict(row._mapping) for row in connection.execute(select(table))]
            for table in tables
        }
    uids = {row["id"]: row["sop_instance_uid"] for row in found["instance"]}
    for row in (row for rows in found.values() for row in rows):
        row["of"] = uids.get(row.get("instance_id"))
        for name in _NUMBERS:
            row.pop(name, None)
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_what_its_arrivals_are_one_by_one(
    ledgers: tuple[Ledger, Ledger], clock: Clock, seed: int
) -> None:
    together, singly = ledgers
    source = random.Random(seed)
    crashed = [arrival(0, 0)]  # recorded again by the scan at start, under its own path
    note = Rejection("1.2.5", "1.3.1", RemovalReason.QUALITY, "1.9", "MODALITY")
    seen: set[RecordOutcome] = set()
    for ledger in ledgers:
        ledger.reject([note])
    for _ in range(4):
        arrivals = drawn(source, 24) + crashed
        outcomes = together.record(arrivals)
        assert outcomes == [singly.record([item])[0] for item in arrivals]
        seen |= set(outcomes)
        assert written(together) == written(singly)
        clock.now += source.uniform(1, 30)
    assert {
        RecordOutcome.NEW,
        RecordOutcome.DUPLICATE,
        RecordOutcome.HEADER_REVISION,
        RecordOutcome.CONFLICT,
    } <= seen


def test_a_batch_of_new_images_takes_as_many_statements_as_one(
    ledgers: tuple[Ledger, Ledger],
) -> None:
    counts = []
    for ledger, size in zip(ledgers, (1, 60), strict=True):
        with statements(ledger) as said:
            outcomes = ledger.record([arrival(number, number // 2) for number in range(size)])
        assert set(outcomes) == {RecordOutcome.NEW}
        counts.append(len(said))
    assert counts[1] <= counts[0]


def test_no_statement_holds_more_headers_than_postgresql_takes(
    ledgers: tuple[Ledger, Ledger],
) -> None:
    with statements(ledgers[0]) as said:
        outcomes = ledgers[0].record([arrival(number, number // 2) for number in range(121)])
    assert set(outcomes) == {RecordOutcome.NEW}
    assert sum(statement.startswith("INSERT INTO instance ") for statement in said) == 3


def test_studies_are_assigned_in_one_order(ledgers: tuple[Ledger, Ledger]) -> None:
    """Two listeners that get images of the same studies by turns would wait for each other (PostgreSQL)."""
    ledger, _ = ledgers
    with contextlib.closing(Rollouts(ledger.url)) as rollouts:
        rollouts.start("a@1", kept("a@2"), RolloutRequest(RolloutMode.SWITCH), "a person")
    ledger.record([arrival(image, study) for image, study in enumerate((3, 1, 2, 1))])
    with transaction(ledger) as connection:
        written = (
            connection.execute(
                select(schema.assignment.c.study_instance_uid).order_by(schema.assignment.c.id)
            )
            .scalars()
            .all()
        )
    assert written == ["1.3.1", "1.3.2", "1.3.3"]


def test_images_are_numbered_as_they_came(ledgers: tuple[Ledger, Ledger]) -> None:
    """In this order people see them, and reports name them."""
    for numbers in ((5, 3, 9, 1), (8, 2)):
        ledgers[0].record([arrival(number, 1) for number in numbers])
    with transaction(ledgers[0]) as connection:
        query = select(schema.instance.c.sop_instance_uid).order_by(schema.instance.c.id)
        assert connection.execute(query).scalars().all() == [
            f"1.2.{number}" for number in (5, 3, 9, 1, 8, 2)
        ]


def test_no_arrivals_are_no_rows(ledgers: tuple[Ledger, Ledger]) -> None:
    assert ledgers[0].record([]) == []
    assert not any(written(ledgers[0]).values())


def test_two_listeners_record_the_same_images_in_opposite_order(
    ledgers: tuple[Ledger, Ledger],
) -> None:
    """As a router does that sends a study twice.

    The second one finds the rows of the first, and neither waits for the other in vain.
    """
    images = list(range(40))
    start, outcomes, failed = threading.Barrier(2), [], []

    def listen(order: list[int]) -> None:
        own = Ledger(ledgers[0].url)
        start.wait()
        try:
            for begin in range(0, len(order), 10):
                outcomes.extend(
                    own.record([arrival(image, image // 2) for image in order[begin : begin + 10]])
                )
        except SQLAlchemyError as error:
            failed.append(error)
        own.close()

    listeners = [threading.Thread(target=listen, args=(order,)) for order in (images, images[::-1])]
    for thread in listeners:
        thread.start()
    for thread in listeners:
        thread.join()
    assert failed == []
    assert Counter(outcomes) == {RecordOutcome.NEW: 40, RecordOutcome.DUPLICATE: 40}
    rows = written(ledgers[0])
    assert len(rows["instance"]) == 40
    assert len(rows["reading"]) == 40 * len(_RELEASES)
    assert {(row["revision"], row["open_readings"]) for row in rows["study"]} == {
        (2, 2 * len(_RELEASES))
    }
