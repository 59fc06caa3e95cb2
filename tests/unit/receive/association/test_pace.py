"""Who is too slow: by a clock and counts that the test gives, and at a real connection."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import pytest

from hilum.minimum_rate import Pace
from hilum.receive.association.slow_sender import SlowSenderDetector
from hilum.settings import Receive
from tests.support.machine.waiting import wait_for


def found_at(came: Iterable[float], whole: Iterable[int] = ()) -> int | None:
    """The second at which a sender is found, of which so many bytes came in each.

    100 a second are wanted, in windows of 60 s.
    """
    pace, received, messages = Pace(100, 60.0), 0.0, list(whole)
    for second, count in enumerate(came):
        received += count
        if pace.is_too_slow(1000.0 + second, int(received), messages[second] if messages else 0):
            return second
    return None


def test_a_byte_now_and_then_is_found_after_two_windows() -> None:
    assert found_at([5000] + [0.05] * 600) == 120
    assert found_at([5000] + [1 if second % 59 == 0 else 0 for second in range(600)]) == 120


@pytest.mark.parametrize(
    "came",
    [
        pytest.param([100.0] * 1000, id="just enough"),
        pytest.param([0.0] * 1000, id="silence"),
        pytest.param(([10_000.0] + [0.0] * 59) * 10, id="a burst in each window"),
        pytest.param(([1.0] * 60 + [6000.0] + [0.0] * 59) * 5, id="every other window"),
        pytest.param([1.0] * 30 + [0.0] * 500, id="a little, and then silence, in which we answer"),
    ],
)
def test_who_sends_enough_or_nothing_is_not(came: list[float]) -> None:
    assert found_at(came) is None


def test_small_messages_that_come_as_a_whole_are_no_drops() -> None:
    assert found_at([1.0] * 1000, whole=[second // 50 for second in range(1000)]) is None


def test_a_limit_of_nothing_finds_nobody() -> None:
    pace = Pace(0, 1.0)
    assert not any(pace.is_too_slow(float(second), second) for second in range(100))


def is_found(minimum: int = 1 << 20, *, is_read: bool = True) -> bool:
    """At a connection on which a byte comes before each look. A window is as short as a look."""
    watched = SlowSenderDetector(
        Receive(minimum_bytes_per_second=minimum, network_timeout_seconds=1e-9)
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as peer,
    ):
        ours, _ = listening.accept()
        with ours:
            found = False
            for count in range(1, 6):
                peer.sendall(b"x")
                wait_for(
                    lambda count=count: (
                        len(ours.recv(10, socket.MSG_PEEK)) == (1 if is_read else count)
                    ),
                    what="the byte",
                )
                found = found or watched.is_found(ours, 0)
                if is_read:
                    ours.recv(1)
            return found


def test_the_kernel_has_counted_what_came() -> None:
    assert is_found(), "each byte is there at the look, and taken before the next"


def test_who_waits_for_us_is_not_too_slow() -> None:
    assert not is_found(is_read=False)


def test_without_a_limit_nobody_is() -> None:
    assert not is_found(minimum=0)


def test_a_connection_that_is_closed_is_not() -> None:
    watched = SlowSenderDetector(Receive())
    with socket.socket() as closed:
        pass
    assert not watched.is_found(closed, 0)
