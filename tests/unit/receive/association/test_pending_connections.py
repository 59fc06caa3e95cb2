"""Who makes room when there are too many connections without an association."""

from __future__ import annotations

from hilum.receive.association.pending_connections import PendingConnections


class Connection:
    def __init__(self) -> None:
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True


def entered(pending: PendingConnections, address: str, count: int) -> list[Connection]:
    made = [Connection() for _ in range(count)]
    for connection in made:
        pending.enter(connection, address)
    return made


def dropped(connections: list[Connection]) -> list[bool]:
    return [connection.is_dropped for connection in connections]


def test_within_the_limit_nobody_is_dropped() -> None:
    assert not any(dropped(entered(PendingConnections(5), "192.0.2.1", 5)))


def test_beyond_it_the_oldest_of_the_address_with_most_makes_room() -> None:
    pending = PendingConnections(5)
    sender, stranger = entered(pending, "192.0.2.1", 2), entered(pending, "192.0.2.2", 3)
    newcomer = entered(pending, "192.0.2.3", 1)
    assert dropped(sender + stranger + newcomer) == [False, False, True, False, False, False]


def test_a_flood_of_one_address_pushes_out_itself() -> None:
    pending = PendingConnections(5)
    sender, flood = entered(pending, "192.0.2.1", 1), entered(pending, "192.0.2.2", 1000)
    assert dropped(sender) == [False]
    assert dropped(flood).count(False) == 4


def test_one_that_has_left_makes_room_by_itself_and_may_leave_twice() -> None:
    pending = PendingConnections(2)
    first, second = entered(pending, "192.0.2.1", 2)
    for _ in range(2):
        pending.leave(first, "192.0.2.1")
    third = entered(pending, "192.0.2.1", 1)
    assert dropped([first, second, *third]) == [False] * 3
    pending.leave(second, "192.0.2.1")
    assert not any(dropped(entered(pending, "192.0.2.1", 1)))


def test_a_network_of_ipv6_is_one_host_and_a_mapped_address_is_that_of_ipv4() -> None:
    pending = PendingConnections(4)
    sender = entered(pending, "::ffff:192.0.2.1", 1) + entered(pending, "2001:db8:1::5", 1)
    stranger = (
        entered(pending, "2001:db8:2::1", 1)
        + entered(pending, "2001:db8:2::2%eth0", 1)
        + entered(pending, "2001:db8:2::3", 1)
    )
    assert dropped(sender + stranger) == [False, False, True, False, False]
    pending.leave(sender[0], "192.0.2.1")
    assert not any(dropped(entered(pending, "::1", 1)))
