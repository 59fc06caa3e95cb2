"""Reads of an association to a PACS are acknowledged at once."""

from __future__ import annotations

import socket

from hilum.retrieve.dimse import association


class Transport:
    """As pynetdicom's AssociationSocket: it has a socket and reads from it."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own

    def recv(self, count: int) -> bytearray:
        """Read so many bytes."""
        return bytearray(self.socket.recv(count))


def test_each_read_asks_the_kernel_to_acknowledge_at_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as own,
        server.accept()[0] as far,
    ):
        transport = Transport(own)
        association.acknowledge_without_delay(transport)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        far.sendall(b"answer")

        received = transport.recv(6)

        assert received == b"answer"
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


def test_a_socket_without_that_option_is_read_all_the_same() -> None:
    own, far = socket.socketpair()
    with own, far:
        transport = Transport(own)
        association.acknowledge_without_delay(transport)
        far.sendall(b"a")

        assert transport.recv(1) == b"a"
