"""The client of a document: its destination's, or that of the study's sender."""

from __future__ import annotations

import contextlib
from typing import Protocol

from hilum.deliver import DestinationClient, open_client
from hilum.deliver.circuit_breaker import CircuitBreaker
from hilum.domain import DeliveryJob
from hilum.errors import Refused
from hilum.settings import Destination, Pipeline
from hilum.withheld_reports import knows_sender

_MAXIMUM_OPEN = 8  # senders whose clients are kept; a released association is soon opened again


class DestinationClients(Protocol):
    """The clients of one destination."""

    def of(self, job: DeliveryJob) -> DestinationClient:
        """Return the client of this document. Raises Refused."""

    def has_room(self) -> bool:
        """Return False while any document would only be given back; in any thread."""

    def close(self) -> None:
        """Close all clients."""


def clients_of(name: str, destination: Destination, settings: Pipeline) -> DestinationClients:
    """Return the clients of a destination; nothing is connected before the first document."""
    if destination.kind == "sender":
        return SenderClients(name, destination, settings)
    return _SingleClient(CircuitBreaker(name, open_client(name, destination), settings))


class _SingleClient:
    """A single client for all documents."""

    def __init__(self, client: CircuitBreaker) -> None:
        self._client = client

    def of(self, _job: DeliveryJob) -> DestinationClient:
        return self._client

    def has_room(self) -> bool:
        return not self._client.is_open

    def close(self) -> None:
        self._client.close()


class SenderClients:
    """Clients of the senders of studies.

    An address is the host of the association, and the port that the settings name for its AE Title.
    """

    def __init__(self, name: str, destination: Destination, settings: Pipeline) -> None:
        self._name = name
        self._destination = destination
        self._settings = settings
        self._open: dict[tuple[str, str], CircuitBreaker] = {}

    def of(self, job: DeliveryJob) -> DestinationClient:
        """Return the client to the study's sender.

        The least recently used client is closed. Clients of unreachable senders are kept, with the
        time of their next probe.
        """
        key = job.peer_address, job.calling_ae_title
        client = self._open.pop(key, None) or CircuitBreaker(
            self._name, open_client(self._name, self._sender(*key)), self._settings
        )
        self._open[key] = client
        there = [known for known, client in self._open.items() if not client.is_away]
        for known in there[:-_MAXIMUM_OPEN]:
            self._open.pop(known).close()
        return client

    def has_room(self) -> bool:
        """Return True: one sender that is away must not delay the others."""
        return True

    def _sender(self, host: str, ae_title: str) -> Destination:
        if not knows_sender(self._destination, host, ae_title):
            raise Refused(
                "sender_unknown",
                f"no port for this sender in destinations.{self._name}.ports; name it and requeue",
            )
        port = self._destination.ports[ae_title]
        return self._destination.model_copy(
            update={"kind": "dicom", "host": host, "port": port, "ae_title": ae_title}
        )

    def close(self) -> None:
        """Close all clients."""
        with contextlib.ExitStack() as stack:
            for client in self._open.values():
                stack.callback(client.close)
        self._open.clear()
