"""Connections before their association and after it: few, and shared fairly among addresses."""

from __future__ import annotations

import ipaddress
import threading
from typing import Protocol

_IPV6_BITS_OF_A_NETWORK = 64  # one host has all its addresses


class Pending(Protocol):
    """A connection without an association."""

    def drop(self) -> None:
        """Close it now; from any thread."""


class PendingConnections:
    """A limited set of connections.

    Beyond the limit the oldest connection of the address with the most of them is dropped. A sender
    sends its request within milliseconds, so silent connections replace each other and nothing
    else.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._by_address: dict[str, dict[Pending, None]] = {}
        self._count = 0

    def enter(self, connection: Pending, address: str) -> None:
        """Add a connection that has no association from now on."""
        share = _share_of(address)
        with self._lock:
            dropped = self._oldest_of_the_most() if self._count >= self._limit else None
            self._by_address.setdefault(share, {})[connection] = None
            self._count += 1
        if dropped is not None:
            dropped.drop()

    def leave(self, connection: Pending, address: str) -> None:
        """Remove a connection that has an association, or has ended. Idempotent."""
        with self._lock:
            self._remove(_share_of(address), connection)

    def _oldest_of_the_most(self) -> Pending:
        share = max(self._by_address, key=lambda each: len(self._by_address[each]))
        oldest = next(iter(self._by_address[share]))
        self._remove(share, oldest)
        return oldest

    def _remove(self, share: str, connection: Pending) -> None:
        connections = self._by_address.get(share, {})
        if connection in connections:
            del connections[connection]
            self._count -= 1
        if not connections:
            self._by_address.pop(share, None)


def _share_of(address: str) -> str:
    """Return the key that counts as one address: of IPv6 a whole network."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    return str(
        found.ipv4_mapped
        or ipaddress.IPv6Network((int(found), _IPV6_BITS_OF_A_NETWORK), strict=False)
    )
