"""What all associations of one process share: the settings, the way in, and how many may be inside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hilum.receive import policy
from hilum.receive.account_book import AccountBook
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
    reception: Reception
    accounts: AccountBook
    watermarks: Callable[[], policy.Rejection | None] = lambda: None
    is_streaming: bool = False
    closing: threading.Event = field(default_factory=threading.Event)
    _admitted: dict[Guest, str] = field(default_factory=dict)  # each with its Calling AE Title
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, guest: Guest, called: str, calling: str, peer_address: str = "") -> policy.Rejection | None:
        """Count this association in, or say why not."""
        full = self.watermarks()  # outside of the lock: it may ask the ledger
        with self._lock:
            titles = [title for other, title in self._admitted.items() if other.is_open]
            of_sender = titles.count(calling.strip())
            refused = policy.rejection(called, calling, len(titles), self.settings, peer_address=peer_address, open_of_sender=of_sender)
            if (rejection := refused or full) is None:
                self._admitted[guest] = calling.strip()
            return rejection

    def leave(self, guest: Guest) -> None:
        """The association is over."""
        with self._lock:
            self._admitted.pop(guest, None)
