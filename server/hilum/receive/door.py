"""What all associations of one process share: the settings, the way in, and how many may be inside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hilum.receive.account_book import AccountBook
from hilum.receive.census import Seat
from hilum.receive.commitment_desk import Desk
from hilum.receive.policy import Open, Policy, Rejection
from hilum.receive.reception import Reception
from hilum.settings import Receive


class Guest(Protocol):
    """An association that was admitted."""

    @property
    def is_open(self) -> bool:
        """Whether it counts; one that has ended may still be closing its connection."""


@dataclass(slots=True)
class Door:
    """Safe to use from every association's threads. `closing` is set when the process ends.

    `is_streaming`: accepted associations are handed over to the streaming loop.
    """

    settings: Receive
    policy: Policy
    reception: Reception
    accounts: AccountBook
    desk: Desk
    watermarks: Callable[[], Rejection | None] = lambda: None
    is_streaming: bool = False
    seat: Seat = field(default_factory=Seat)
    closing: threading.Event = field(default_factory=threading.Event)
    _admitted: dict[Guest, str] = field(default_factory=dict)  # each with its Calling AE Title
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(
        self, guest: Guest, called: str, calling: str, peer_address: str = "", certificate_names: frozenset[str] = frozenset()
    ) -> Rejection | None:
        """Count this association in, or say why not. `certificate_names`: see `Policy.rejection`."""
        full = self.watermarks()  # outside of the lock: it may ask the ledger
        with self._lock, self.seat.held() as elsewhere:
            titles, title = self._open_titles(), calling.strip()
            already = Open(len(titles) + elsewhere.total(), titles.count(title) + elsewhere.of(title))
            if (rejection := self.policy.rejection(called, calling, peer_address, already, certificate_names) or full) is None:
                self._admitted[guest] = title
                self.seat.write([*titles, title])
            return rejection

    def leave(self, guest: Guest) -> None:
        """The association is over."""
        with self._lock, self.seat.held():  # numbers are written a byte at a time: another process must not count half of one
            self._admitted.pop(guest, None)
            self.seat.write(self._open_titles())

    def _open_titles(self) -> list[str]:
        return [title for guest, title in self._admitted.items() if guest.is_open]
