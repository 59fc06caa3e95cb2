"""Delivery: documents leave through one client for each destination.

The stored bytes are sent unchanged, and a repeated delivery sends the same bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from hilum.deliver.client import (
    DestinationClient,
    Probe,
    ReceiverBusy,
    SopClassRefused,
    UnknownOutcome,
)
from hilum.deliver.cstore import DicomClient
from hilum.deliver.fhir import FhirClient
from hilum.deliver.folder import FolderClient
from hilum.deliver.hl7 import Hl7Client
from hilum.deliver.send import FileState, SendReport, SentFile, send
from hilum.deliver.sender import SenderClient
from hilum.deliver.stow import StowClient
from hilum.deliver.webhook import WebhookClient
from hilum.settings import Destination

__all__ = [
    "DESTINATIONS",
    "DestinationClient",
    "FileState",
    "Probe",
    "ReceiverBusy",
    "SendReport",
    "SentFile",
    "SopClassRefused",
    "UnknownOutcome",
    "open_client",
    "probe_destination",
    "send",
]

# The client of each kind of `settings.DESTINATION_KINDS`.
DESTINATIONS: Final[Mapping[str, Callable[[str, Any], DestinationClient]]] = {
    "dicom": DicomClient,
    "folder": FolderClient,
    "sender": SenderClient,
    "stow": StowClient,
    "hl7": Hl7Client,
    "webhook": WebhookClient,
    "fhir": FhirClient,
}


def open_client(name: str, destination: Destination) -> DestinationClient:
    """Return the client to one destination.

    Nothing is connected or created before the first document.
    """
    return DESTINATIONS[destination.kind](name, destination)


def probe_destination(
    name: str, destination: Destination, limit_seconds: float | None = None
) -> Probe:
    """Test a destination without sending a document (see `DestinationClient.probe`)."""
    with contextlib.closing(open_client(name, destination)) as client:
        return client.probe(limit_seconds)
