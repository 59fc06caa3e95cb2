"""One association limit for all listener processes.

Counted exactly, and a dead process holds nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event

from hilum.receive.association.counter import CounterSlot, SharedAssociationCounter

FORK = multiprocessing.get_context("fork")  # the descriptor is inherited, as it is by listeners
LIMIT = 50


def take_seats(counter_fd: int, index: int, go: Event) -> None:
    """Admit one association after the other while there is room anywhere."""
    seat, own = CounterSlot(SharedAssociationCounter(4, ("ROUTER",), counter_fd), index), ["OTHER"]
    seat.write(own)
    go.wait()
    while True:
        with seat.held() as elsewhere:
            if elsewhere.of("ROUTER") + own.count("ROUTER") >= LIMIT:
                return
            own.append("ROUTER")
            seat.write(own)


def test_four_processes_together_admit_exactly_the_limit_of_a_sender() -> None:
    census, go = SharedAssociationCounter(4, ("ROUTER",)), FORK.Event()
    processes = [
        FORK.Process(target=take_seats, args=(census.descriptor, index, go)) for index in range(4)
    ]
    for process in processes:
        process.start()
    go.set()
    for process in processes:
        process.join(30)
    assert census.elsewhere(-1).of("ROUTER") == LIMIT
    assert census.elsewhere(-1).total() == LIMIT + 4


def hold(counter_fd: int, held: Event) -> None:
    census = SharedAssociationCounter(2, (), counter_fd)
    with census.held():
        census.write(1, ["CR1"] * 7)
        held.set()
        time.sleep(60)


def test_a_process_killed_in_the_census_frees_its_lock_and_its_count_can_be_cleared() -> None:
    census, held = SharedAssociationCounter(2), FORK.Event()
    process = FORK.Process(target=hold, args=(census.descriptor, held))
    process.start()
    assert held.wait(30)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    with CounterSlot(census, 0).held() as elsewhere:
        assert elsewhere.total() == 7
    census.clear(1)
    with CounterSlot(census, 0).held() as elsewhere:
        assert elsewhere.total() == 0


def test_only_senders_with_a_limit_are_counted_apart() -> None:
    census = SharedAssociationCounter(3, ("A", "B"))
    census.write(0, ["A", "B", "C", "A"])
    census.write(1, ["A", "D"])
    elsewhere = census.elsewhere(2)
    assert (elsewhere.total(), elsewhere.of("A"), elsewhere.of("B"), elsewhere.of("C")) == (
        6,
        3,
        1,
        0,
    )
    assert (census.elsewhere(0).total(), census.elsewhere(0).of("A")) == (2, 1)


def test_alone_there_is_nothing_to_share() -> None:
    with CounterSlot().held() as elsewhere:
        assert elsewhere.total() == 0
