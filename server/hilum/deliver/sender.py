"""The senders of studies as destination, before it is known which sender."""

from __future__ import annotations

from hilum.deliver.client import Probe
from hilum.domain import Document
from hilum.errors import Refused
from hilum.settings import SenderDestination


class SenderClient:
    """The client of documents whose sender has no port in the settings.

    Documents of a known sender go by the client of `SenderDestination.for_sender`.
    """

    def __init__(self, name: str, destination: SenderDestination) -> None:
        self._name = name
        self._destination = destination

    def deliver(self, _document: Document) -> None:
        """Raise Refused (see `DestinationClient.deliver`)."""
        raise Refused(
            "sender_unknown",
            f"no port for this sender in destinations.{self._name}.ports; name it and requeue",
        )

    def probe(self, _limit_seconds: float | None = None) -> Probe:
        """Return a success without a test: the address is known when a study has come."""
        titles = ", ".join(self._destination.ports)
        detail = f"back to {titles}: where that is, is known when a study has come"
        return Probe(self._name, self._destination.address, is_ok=True, detail=detail)

    def close(self) -> None:
        """Do nothing: nothing is held open."""
