"""The clients of a destination: one for each place that its documents go to."""

from __future__ import annotations

import contextlib
from typing import Final

from hilum.deliver import DestinationClient, open_client
from hilum.deliver.circuit_breaker import CircuitBreaker
from hilum.domain import DeliveryJob
from hilum.settings import Destination, Pipeline

# places whose clients are kept; a released association is soon opened again
_MAXIMUM_OPEN: Final = 8


class DestinationClients:
    """The clients of one destination; nothing is connected before the first document.

    Most kinds have one place. The place of a sender destination is the sender of the study.
    """

    def __init__(self, name: str, destination: Destination, settings: Pipeline) -> None:
        self._name = name
        self._destination = destination
        self._settings = settings
        self._open: dict[str, CircuitBreaker] = {}

    def of(self, job: DeliveryJob) -> DestinationClient:
        """Return the client of this document.

        The least recently used client is closed. Clients of unreachable places are kept, with the
        time of their next probe.
        """
        sender = self._destination.for_sender(job.peer_address, job.calling_ae_title)
        place = sender or self._destination
        client = self._open.pop(place.address, None) or CircuitBreaker(
            self._name, open_client(self._name, place), self._settings
        )
        self._open[place.address] = client
        there = [known for known, client in self._open.items() if not client.is_away]
        for known in there[:-_MAXIMUM_OPEN]:
            self._open.pop(known).close()
        return client

    def has_room(self) -> bool:
        """Return False while any document would only be given back; in any thread."""
        return not self._destination.has_one_place or not any(
            client.is_open for client in list(self._open.values())
        )

    def close(self) -> None:
        """Close all clients."""
        with contextlib.ExitStack() as stack:
            for client in self._open.values():
                stack.callback(client.close)
        self._open.clear()
