"""Processes that died with their supervisor: the next one ends their leases, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sqlalchemy import update

from hilum.processes.heartbeat import begin_life
from hilum.services.launch_spec import is_ours, process_name, short_host
from hilum.store.ledger import Ledger
from hilum.store.schema import tables
from hilum.supervisor.supervisor import bury_silent
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import change
from tests.support.ledger.street import Clock
from tests.support.machine.waiting import wait_for

RELEASE = "densenet121_untrained@1"


@pytest.fixture
def dead() -> int:
    """Process id of one that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def busy(ledger: Ledger, name: str, pid: int) -> None:
    """A process that says that it lives, has a reading and owns a destination."""
    ledger.beat(name, "dispatcher", pid, started_at=0.0, is_ready=True)
    assert len(ledger.claim("analyse", 1, name, 600)) == 1
    assert ledger.acquire_destination("pacs", name, 600)


def test_what_a_dead_process_of_this_host_held_is_free_once_it_is_silent(
    ledger: Ledger, clock: Clock, dead: int
) -> None:
    ledger.record([arrival_of("1.2.3.1", "1.2.3", (RELEASE,))])
    busy(ledger, "dead", dead)
    clock.now += 9
    bury_silent(ledger, 10)
    assert not ledger.acquire_destination("pacs", "next", 600), (
        "it has beaten a moment ago: who cannot see it need not be right"
    )
    clock.now += 2
    bury_silent(ledger, 10)
    assert ledger.acquire_destination("pacs", "next", 600)
    (job,) = ledger.claim("analyse", 1, "next", 600)
    assert job.lease.lapses == 1
    assert ledger.silent(0) == [], "it is forgotten"


def test_a_living_process_keeps_what_it_holds_however_silent_it_is(
    ledger: Ledger, clock: Clock
) -> None:
    """Its heartbeats fail while the ledger is locked; its work is not over for that."""
    ledger.record([arrival_of("1.2.3.1", "1.2.3", (RELEASE,))])
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", "hilum"], stdin=subprocess.PIPE
    ) as living:
        wait_for(
            lambda: is_ours(living.pid)
        )  # a program that has only just begun has no command line yet
        busy(ledger, "living", living.pid)
        clock.now += 300
        bury_silent(ledger, 10)
        assert not ledger.acquire_destination("pacs", "next", 600)
        assert [name for name, _ in ledger.silent(10)] == ["living"]


def test_another_program_that_has_got_its_number_is_not_taken_for_it(
    ledger: Ledger, clock: Clock
) -> None:
    ledger.record([arrival_of("1.2.3.1", "1.2.3", (RELEASE,))])
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd="/") as other:
        busy(ledger, "dead", other.pid)
        clock.now += 11
        bury_silent(ledger, 10)
        assert ledger.acquire_destination("pacs", "next", 600)


def test_processes_of_another_host_are_none_of_our_business(
    ledger: Ledger, clock: Clock, dead: int
) -> None:
    ledger.record([arrival_of("1.2.3.1", "1.2.3", (RELEASE,))])
    busy(ledger, "elsewhere", dead)
    change(ledger, update(tables.process).values(host="another"))
    clock.now += 11
    bury_silent(ledger, 10)
    assert not ledger.acquire_destination("pacs", "next", 600)


def test_a_process_that_begins_holds_nothing_that_another_left_under_its_name(
    ledger: Ledger,
) -> None:
    """In a container that is started again process ids are the same ones."""
    ledger.record([arrival_of("1.2.3.1", "1.2.3", (RELEASE,))])
    name = process_name("dispatcher", os.getpid())
    busy(ledger, name, os.getpid())
    assert begin_life(ledger, "dispatcher") == name
    (job,) = ledger.claim("analyse", 1, name, 600)
    assert job.lease.lapses == 1


def test_two_that_live_under_one_name_hear_of_each_other(ledger: Ledger) -> None:
    def beat(started_at: float) -> bool:
        return ledger.beat("one", "dispatcher", 7, started_at=started_at, is_ready=True)

    assert [beat(moment) for moment in (1.1, 1.1, 2.2, 2.2, 1.1)] == [
        True,
        True,
        False,
        True,
        False,
    ]
    ledger.forget_processes(["one"])
    assert beat(2.2), "the row is new"


def test_long_host_names_are_told_apart_and_fit_the_ledger() -> None:
    pods = [f"imaging-production-hilum-dispatcher-6d5f7c8b9d-{end}" for end in ("x2x4v", "k9w7q")]
    short = [short_host(name) for name in pods]
    assert short[0] != short[1]
    assert {len(name) for name in short} == {40}
    assert short_host(pods[0][:40]) == pods[0][:40], "what an upgrade finds is still its own"
