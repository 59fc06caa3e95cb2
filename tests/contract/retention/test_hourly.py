"""What is wrong with a setting or a disk empties no archive overnight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import Priority
from hilum.settings import Retention as RetentionSettings
from hilum.store.archive.archive import Archive
from hilum.store.retention.policy import RetentionPolicy, Rule, Share
from hilum.store.schema import tables
from hilum.supervisor.housekeeping import hourly_share
from tests.support.ledger.database import change
from tests.support.ledger.street import Clock, Street

EVERY_PRIORITY = frozenset(Priority)
GIB = 1 << 30


def opened(url: str, folder: Path, clock: Clock) -> RetentionPolicy:
    (folder / "archive" / "locks").mkdir(parents=True, exist_ok=True)
    return RetentionPolicy(url, Archive(folder / "archive"), clock, Share(0.5, 2))


@pytest.fixture
def retention(ledger_url: str, tmp_path: Path, clock: Clock) -> Iterator[RetentionPolicy]:
    made = opened(ledger_url, tmp_path, clock)
    yield made
    made.close()


def studies(street: Street, count: int, size_bytes: int = 1000) -> None:
    for number in range(count):
        street.walk(f"1.2.{number}", 1)
    change(street.ledger, tables.instance.update().values(size_bytes=size_bytes))
    street.clock.now += 7200


def left(street: Street) -> int:
    return sum(row.pixels_removed_at is None for row in street.rows(tables.instance))


def by_age(clock: Clock) -> Rule:
    return Rule(EVERY_PRIORITY, clock.now, "age")


def test_no_more_leaves_by_age_than_the_hours_share(
    street: Street, clock: Clock, retention: RetentionPolicy, ledger_url: str, tmp_path: Path
) -> None:
    studies(street, 10)
    while retention.release(by_age(clock)):
        pass
    assert (left(street), retention.hour.is_spent) == (5, True)
    again = opened(ledger_url, tmp_path, clock)
    assert again.release(by_age(clock)) == 0, "a restart begins no hour"
    clock.now += 3599
    assert again.release(by_age(clock)) == 0
    clock.now += 2
    assert again.release(by_age(clock)) > 0
    assert left(street) == 3, "half of what was left, or two"
    again.close()


def test_a_normal_day_is_not_held_up() -> None:
    shares = {days: hourly_share(RetentionSettings(days=days)).share for days in (1, 7, 30, 365)}
    assert shares == {1: 4 / 24, 7: 4 / 168, 30: 0.02, 365: 0.02}
    assert hourly_share(RetentionSettings(days=0.01)).share == 1.0
    assert hourly_share(RetentionSettings(days=30, hourly_share=0.5)).share == 0.5
    assert hourly_share(RetentionSettings()) == Share(0.02, 1000)


def test_pressure_takes_what_is_missing_and_not_the_archive_where_that_frees_nothing(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    studies(street, 6, GIB)
    under_pressure = Rule(EVERY_PRIORITY, clock.now, "pressure")
    freed = [retention.release(under_pressure, bytes_wanted=1000) for _ in range(6)]
    assert freed == [GIB, GIB, 0, 0, 0, 0], (
        "what was missing, and some room; a snapshot may hold the rest"
    )
    clock.now += 3601
    assert retention.release(under_pressure, bytes_wanted=1000) == GIB


def test_pressure_takes_as_much_as_comes(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    studies(street, 3, GIB)
    under_pressure = Rule(EVERY_PRIORITY, clock.now, "pressure")
    assert retention.release(under_pressure, bytes_wanted=1000) == GIB
    street.receive("1.3.1", 1)
    change(
        street.ledger,
        tables.instance.update()
        .where(tables.instance.c.sop_instance_uid == "1.3.1.1")
        .values(size_bytes=GIB),
    )
    assert [retention.release(under_pressure, bytes_wanted=1000) for _ in range(3)] == [GIB, GIB, 0]


def test_the_share_does_not_hold_up_pressure(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    studies(street, 6)
    while retention.release(by_age(clock)):
        pass
    assert (
        retention.release(Rule(EVERY_PRIORITY, clock.now, "pressure"), bytes_wanted=10_000) == 3000
    )


@pytest.mark.parametrize("cause", ["age", "pressure"])
def test_what_storage_commitment_has_promised_stays(
    street: Street, clock: Clock, retention: RetentionPolicy, cause: str
) -> None:
    street.walk("1.2.1", 1, 2)
    street.ledger.promise(["1.2.1.1", "1.9"])
    promised_at = clock.now
    clock.now += 7200
    wanted = {"bytes_wanted": 10_000} if cause == "pressure" else {}
    assert retention.release(Rule(EVERY_PRIORITY, clock.now, cause), **wanted) == 1000  # type: ignore[arg-type]
    assert [
        (row.sop_instance_uid, row.pixels_removed_at is None)
        for row in street.rows(tables.instance)
    ] == [
        ("1.2.1.1", True),
        ("1.2.1.2", False),
    ]
    for promised_before, freed in ((None, 0), (promised_at, 0), (promised_at + 1, 1000)):
        assert (
            retention.release(Rule(EVERY_PRIORITY, clock.now, cause, promised_before), **wanted)
            == freed
        )  # type: ignore[arg-type]


def test_who_asks_again_is_promised_anew(street: Street, clock: Clock) -> None:
    street.walk("1.2.1", 1)
    for _ in range(2):
        street.ledger.promise(["1.2.1.1"])
        (row,) = street.rows(tables.instance)
        assert row.committed_at == clock.now
        clock.now += 1000
