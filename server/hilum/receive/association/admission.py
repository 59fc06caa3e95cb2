"""The state that all associations of one process share: settings, admission and limits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from hilum.receive.association.counter import CounterSlot
from hilum.receive.association.pending_connections import PendingConnections
from hilum.receive.commitment.reporter import CommitmentReporter
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.receive.policy.association_policy import AssociationRejection, OpenAssociations, Policy
from hilum.receive.policy.record_writer import AssociationRecordWriter
from hilum.receive.storage.dispatcher import ObjectDispatcher
from hilum.settings import Receive


@dataclass(slots=True)
class AdmissionControl:
    """The shared state, safe to use from every association's thread.

    `closing` is set when the process ends.
    """

    settings: Receive
    policy: Policy
    reception: ObjectDispatcher
    accounts: AssociationRecordWriter
    commitments: CommitmentReporter
    reports: TakenReports
    pending: PendingConnections
    watermarks: Callable[[], AssociationRejection | None] = lambda: None
    seat: CounterSlot = field(default_factory=CounterSlot)
    closing: threading.Event = field(default_factory=threading.Event)
    # Each association with its Calling AE Title and its address.
    _admitted: dict[object, tuple[str, str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(
        self,
        association: object,
        called: str,
        calling: str,
        peer_address: str = "",
        certificate_names: frozenset[str] = frozenset(),
    ) -> AssociationRejection | None:
        """Admit this association, or return the rejection.

        `certificate_names`: see `Policy.rejection`.
        """
        full = self.watermarks()  # outside of the lock: it may read the ledger
        with self._lock, self.seat.held() as elsewhere:
            titles = self._titles()
            title = calling.strip()
            of_address = sum(1 for _, address in self._admitted.values() if address == peer_address)
            already = OpenAssociations(
                len(titles) + elsewhere.total(),
                titles.count(title) + elsewhere.of(title),
                of_address,
            )
            if (
                rejection := self.policy.rejection(
                    called, calling, peer_address, already, certificate_names
                )
                or full
            ) is None:
                self._admitted[association] = title, peer_address
                self.seat.write([*titles, title])
            return rejection

    def leave(self, association: object) -> None:
        """Remove an association that is over. Idempotent."""
        if association not in self._admitted:
            return
        # numbers are written a byte at a time: another process must not read half of one
        with self._lock, self.seat.held():
            del self._admitted[association]
            self.seat.write(self._titles())

    def _titles(self) -> list[str]:
        return [title for title, _ in self._admitted.values()]
