"""Delivery: documents leave through one lane for each destination.

The stored bytes are sent unchanged, and a repeated delivery sends the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hilum.deliver.client import Lane, ReceiverBusy, SopClassRefused, UnknownOutcome
from hilum.deliver.cstore import DicomLane
from hilum.deliver.folder import FolderLane
from hilum.deliver.send import FileState, SendReport, SentFile, send
from hilum.settings import Destination

__all__ = [
    "DESTINATIONS",
    "FileState",
    "Lane",
    "ReceiverBusy",
    "SendReport",
    "SentFile",
    "SopClassRefused",
    "UnknownOutcome",
    "open_lane",
    "send",
]

DESTINATIONS: Final[Mapping[str, Callable[[str, Destination], Lane]]] = {
    "dicom": DicomLane,
    "folder": FolderLane,
}


def open_lane(name: str, destination: Destination) -> Lane:
    """Return the lane to one destination.

    Nothing is connected or created before the first document.
    """
    return DESTINATIONS[destination.kind](name, destination)
