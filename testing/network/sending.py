"""Studies over a few associations in an open loop.

A study's start is fixed by its schedule, and it waits when no association is free.

That wait counts in its latency. A loop that sent the next study only when the last one is answered
would measure a slow server less often, and so call it fast (coordinated omission).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

from load_tests.load.mix import Mix
from testing.network.peer_address import Peer
from testing.network.storage_scu import SUCCESS, NotStored, StorageScu
from testing.phantoms.encoded import Outgoing

GIVEN_UP = "given up by the sender: no association was free in time"


class Sent(NamedTuple):
    """What became of one study at the sender; times of `time.monotonic`.

    `failure` None: all images were answered with Success.
    """

    study_instance_uid: str
    intended_at: float
    started_at: float
    ended_at: float
    failure: str | None
    accepted_images: int = 0
    last_accepted_at: float = 0.0

    @property
    def promised_at(self) -> float | None:
        """Since when the server owes a report: its last Success. None: it owes nothing."""
        if self.failure is None:
            return self.ended_at
        return self.last_accepted_at if self.accepted_images else None


class Orders(Protocol):
    """Where the associations get their work. Safe for many threads."""

    def take(self) -> tuple[int, float] | None:
        """Number and intended start of the next study, not before that start.

        None: there is none any more.
        """

    def stop(self) -> None:
        """No more studies."""


class OnTime:
    """The open loop: studies at their moments after `begin`.

    Holds one order for each association, however late they are.
    """

    def __init__(self, starts: Iterator[tuple[int, float]], begin: float) -> None:
        self._starts = starts
        self._begin = begin
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def take(self) -> tuple[int, float] | None:
        """The next study of the schedule."""
        with self._lock:
            number, start = next(self._starts, (0, None))
        if start is None or self._stopped.wait(max(0.0, self._begin + start - time.monotonic())):
            return None
        return number, self._begin + start

    def stop(self) -> None:
        """The rest of the schedule does not take place."""
        self._stopped.set()


class OnPermit:
    """A closed loop: a study for each permit. For finding out what a server takes."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._numbers = count()
        self._is_over = False

    def permit(self, studies: int) -> None:
        """So many more."""
        if studies > 0:
            self._permits.release(studies)

    def take(self) -> tuple[int, float] | None:
        """The next study, as soon as it is permitted."""
        self._permits.acquire()
        return None if self._is_over else (next(self._numbers), time.monotonic())

    def stop(self) -> None:
        """No more studies."""
        self._is_over = True
        self._permits.release(1000)


@dataclass(frozen=True, slots=True)
class Manners:
    """How a sender behaves; the words are those of a scenario's table `sender`."""

    associations: int = 4
    keeps_associations: bool = True
    patience_seconds: float = 0.0
    timeout_seconds: float = 60.0


class Sending:
    """`associations` threads; each sends whole studies, and tells `note` what became of them."""

    def __init__(
        self, peer: Peer, mix: Mix, manners: Manners, orders: Orders, note: Callable[[Sent], None]
    ) -> None:
        self._peer = peer
        self._mix = mix
        self._manners = manners
        self._orders = orders
        self._note = note
        self._threads = [
            threading.Thread(target=self._serve, daemon=True) for _ in range(manners.associations)
        ]

    def start(self) -> None:
        """Begin; `join` waits."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Until all orders are done and the associations released."""
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        kept: dict[str, StorageScu] = {}
        uids = random.Random()
        while (order := self._orders.take()) is not None:
            self._note(self._send(*order, kept, uids))
            if not self._manners.keeps_associations:
                _release(kept)
        _release(kept)

    def _send(
        self, number: int, intended: float, kept: dict[str, StorageScu], uids: random.Random
    ) -> Sent:
        started = time.monotonic()
        calling, study_uid, objects = self._mix.study(number, uids)
        if 0 < self._manners.patience_seconds < started - intended:
            return Sent(study_uid, intended, started, started, GIVEN_UP)
        was_open = calling in kept and kept[calling].is_open
        stored, accepted_at, failure = self._store(objects, kept, calling)
        if failure is not None and was_open and not stored and not kept[calling].is_open:
            # The peer may end an association that was idle; who sends then begins again on a new
            # one.
            stored, accepted_at, failure = self._store(objects, kept, calling)
        return Sent(study_uid, intended, started, time.monotonic(), failure, stored, accepted_at)

    def _store(
        self, objects: list[Outgoing], kept: dict[str, StorageScu], calling: str
    ) -> tuple[int, float, str | None]:
        """How many images were answered with Success, when the last of them, and the first thing that went wrong."""
        stored = 0
        accepted_at = 0.0
        try:
            association = self._association(kept, calling)
            for outgoing in objects:
                status = association.store(outgoing)
                if status != SUCCESS:
                    return stored, accepted_at, f"status 0x{status:04X}"
                stored = stored + 1
                accepted_at = time.monotonic()
        except NotStored as error:
            return stored, accepted_at, str(error)
        return stored, accepted_at, None

    def _association(self, kept: dict[str, StorageScu], calling: str) -> StorageScu:
        if calling not in kept or not kept[calling].is_open:
            kept[calling] = StorageScu(
                self._peer, calling, self._mix.wire_kinds, self._manners.timeout_seconds
            )
            kept[calling].associate()
        return kept[calling]


def _release(kept: dict[str, StorageScu]) -> None:
    for association in kept.values():
        association.release()
    kept.clear()
