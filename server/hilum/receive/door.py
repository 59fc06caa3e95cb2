"""What all associations of one process share: the settings, the way in, and how many may be inside."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from hilum.receive import policy
from hilum.receive.intake import Intake
from hilum.settings import Receive
from hilum.store.ledger import Ledger


class Guest(Protocol):
    """An association that was admitted."""

    @property
    def is_open(self) -> bool:
        """Whether it counts; one that has ended may still be closing its connection."""


@dataclass(slots=True)
class Door:
    """Safe to use from every association's threads. `closing` is set when the process ends."""

    settings: Receive
    intake: Intake
    ledger: Ledger
    closing: threading.Event = field(default_factory=threading.Event)
    _admitted: set[Guest] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, guest: Guest, called: str, calling: str) -> policy.Rejection | None:
        """Count this association in, or say why not."""
        with self._lock:
            count = sum(other.is_open for other in self._admitted)
            if (rejection := policy.rejection(called, calling, count, self.settings)) is None:
                self._admitted.add(guest)
            return rejection

    def leave(self, guest: Guest) -> None:
        """The association is over."""
        with self._lock:
            self._admitted.discard(guest)
