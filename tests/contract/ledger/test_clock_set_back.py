"""A clock that was set back: what waits for a time that will come again waits no longer than it would have, on a host that is right."""

from __future__ import annotations

import dataclasses
import time

from hilum.domain import Advance, ReadingState
from hilum.pipeline import delivery_stage
from hilum.settings import DicomDestination, Sender, Settings
from hilum.store.ledger import Ledger
from hilum.store.schema import tables
from hilum.supervisor.clock_recovery import ClockStepMonitor
from tests.support.ledger.arrivals import QUIET_SECONDS, arrival_of
from tests.support.ledger.street import RELEASE, Clock, Street

SETTINGS = Settings(
    senders={"MOBILE_DR": Sender(quiet_seconds=86400.0)}
)  # no study of its own; the others must not wait a day for that
HOUR = 3600.0


def waits(street: Street) -> list[tuple[str, float]]:
    """Studies and seconds until they are due."""
    return [
        (row.study_instance_uid, round(row.due_at - street.clock.now))
        for row in street.rows(tables.study)
    ]


def test_what_came_in_the_later_time_is_read_and_closed_in_time(
    street: Street, ledger: Ledger, clock: Clock
) -> None:
    clock.now = time.time() + HOUR
    street.receive("1.2.1", 1)
    street.read()
    street.receive("1.2.2", 1)
    clock.now -= HOUR
    assert street.claim("analyse") == [], "its reading would wait for an hour, too"
    watch = ClockStepMonitor(SETTINGS, clock, lambda: 0.0)
    watch.look(ledger)
    assert waits(street) == [
        ("1.2.1", QUIET_SECONDS),
        ("1.2.2", QUIET_SECONDS),
    ], "more images may come"
    street.read()
    clock.now += QUIET_SECONDS
    assert len(street.claim("assemble")) == 2


def test_a_step_is_seen_while_the_server_runs_and_what_waits_rightly_goes_on(
    street: Street, ledger: Ledger, clock: Clock
) -> None:
    clock.now, steady = time.time() + HOUR, Clock(0.0)
    watch = ClockStepMonitor(SETTINGS, clock, steady)
    watch.look(ledger)
    street.receive("1.2.1", 1)
    (job,) = street.claim("analyse")
    ledger.retry("analyse", job.lease, "no answer", 300.0)
    for _ in range(2):  # without a step nothing is looked for
        watch.look(ledger)
        assert street.claim("analyse") == []
    clock.now -= HOUR - 3.0
    steady.now += 3.0
    watch.look(ledger)
    (again,) = street.claim("analyse")
    ledger.advance("analyse", [(again.lease, Advance(ReadingState.ANALYSED, {}))])
    assert waits(street) == [("1.2.1", QUIET_SECONDS)]


def test_a_study_waits_as_long_as_the_settings_said_with_which_it_came(
    street: Street, ledger: Ledger, clock: Clock
) -> None:
    """They may be those of another host, or those before a restart."""
    clock.now = time.time()
    arrival = arrival_of(
        "1.2.1.1", "1.2.1", (RELEASE,), maximum_wait_seconds=86400.0, received_at=clock.now
    )
    ledger.record([dataclasses.replace(arrival, quiet_seconds=2 * HOUR)])
    street.read()
    ClockStepMonitor(Settings(), clock, lambda: 0.0).look(ledger)
    assert waits(street) == [("1.2.1", 2 * HOUR)]


def test_a_host_that_is_behind_its_database_frees_nothing(
    street: Street, ledger: Ledger, clock: Clock
) -> None:
    """SQLite has no other clock: there the same host wrote it."""
    clock.now = time.time()
    street.receive("1.2.1", 1)
    clock.now -= HOUR
    ClockStepMonitor(SETTINGS, clock, lambda: 0.0).look(ledger)
    is_server = ledger.url.startswith("postgresql")
    assert waits(street) == [("1.2.1", HOUR + QUIET_SECONDS if is_server else QUIET_SECONDS)]


def test_a_beat_of_a_time_that_will_come_again_is_none(ledger: Ledger, clock: Clock) -> None:
    ledger.beat("before", "dispatcher", 1, started_at=0.0, is_ready=True)
    clock.now -= HOUR
    assert ledger.silent(10) == [("before", 1)]


def test_what_a_host_that_is_gone_held_in_the_later_time_is_free(
    street: Street, ledger: Ledger, clock: Clock
) -> None:
    """A container that is made anew has another host name.

    Nobody knows the processes of the one before, or ends their leases.
    """
    clock.now = time.time() + HOUR
    street.receive("1.2.1", 1)
    (held,) = street.claim("analyse")
    assert ledger.acquire_destination("pacs", "before", 180.0)
    clock.now -= HOUR
    ClockStepMonitor(SETTINGS, clock, lambda: 0.0).look(ledger)
    (again,) = street.claim("analyse")
    assert (again.lease.row_id, again.lease.lapses) == (held.lease.row_id, 1)
    assert ledger.acquire_destination("pacs", "after", 180.0)


def test_what_is_held_rightly_stays_so(street: Street, ledger: Ledger, clock: Clock) -> None:
    clock.now = time.time()
    street.receive("1.2.1", 1)
    street.claim("analyse")
    assert ledger.acquire_destination("pacs", "another", 180.0)
    ClockStepMonitor(SETTINGS, clock, lambda: 0.0).look(ledger)
    assert (street.claim("analyse"), ledger.acquire_destination("pacs", "ours", 180.0)) == (
        [],
        False,
    )


def test_the_lease_of_a_delivery_with_a_long_limit_is_held_rightly(
    street: Street, ledger: Ledger, clock: Clock
) -> None:
    clock.now = time.time()
    slow = DicomDestination(ae_title="PACS", timeout_seconds=900.0)
    seconds = delivery_stage(slow).lease_seconds
    assert ledger.acquire_destination("pacs", "another", seconds)
    settings = Settings(destinations={"pacs": slow})
    ClockStepMonitor(settings, clock, lambda: 0.0).look(ledger)
    assert not ledger.acquire_destination("pacs", "ours", seconds)
