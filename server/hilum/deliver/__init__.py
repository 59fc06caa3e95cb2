"""Delivery: documents leave through one client for each destination.

The stored bytes are sent unchanged, and a repeated delivery sends the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hilum.deliver.client import DestinationClient, ReceiverBusy, SopClassRefused, UnknownOutcome
from hilum.deliver.cstore import DicomClient
from hilum.deliver.folder import FolderClient
from hilum.deliver.send import FileState, SendReport, SentFile, send
from hilum.settings import Destination

__all__ = [
    "DESTINATIONS",
    "DestinationClient",
    "FileState",
    "ReceiverBusy",
    "SendReport",
    "SentFile",
    "SopClassRefused",
    "UnknownOutcome",
    "open_client",
    "send",
]

DESTINATIONS: Final[Mapping[str, Callable[[str, Destination], DestinationClient]]] = {
    "dicom": DicomClient,
    "folder": FolderClient,
}


def open_client(name: str, destination: Destination) -> DestinationClient:
    """Return the client to one destination.

    Nothing is connected or created before the first document.
    """
    return DESTINATIONS[destination.kind](name, destination)
